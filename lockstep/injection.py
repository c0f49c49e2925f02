"""Failures on purpose, for tests and the demo, by `LOCKSTEP_INJECT` in the environment.

    LOCKSTEP_INJECT="kill worker=1 step=3 phase=exchange; stop worker=0 step=5 phase=forward"

Each rule sends its own process a signal when it enters a phase (a span, see `spans.py`) of a step. A rule strikes once
per process; replacements have other numbers, so they are not struck by it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

VARIABLE = "LOCKSTEP_INJECT"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True)
class Rule:
    action: str
    worker: int
    step: int
    phase: str

    @staticmethod
    def parse(text: str) -> Rule:
        action, *pairs = text.split()
        fields = dict(pair.split("=", 1) for pair in pairs)
        return Rule(action, int(fields["worker"]), int(fields["step"]), fields["phase"])


@contextmanager
def rules(text: str) -> Iterator[None]:
    """Let the workers that are started meanwhile follow these rules."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = text
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def hook(worker: int, step: Callable[[], int]) -> Callable[[str], None] | None:
    """What to call with every phase that is entered, or None if nothing is to be injected here."""
    rules = [Rule.parse(text) for text in os.environ.get(VARIABLE, "").split(";") if text.strip()]
    mine = [rule for rule in rules if rule.worker == worker]
    if not mine:
        return None

    def enter(phase: str) -> None:
        for rule in list(mine):
            if rule.phase == phase and rule.step == step():
                mine.remove(rule)
                os.kill(os.getpid(), SIGNALS[rule.action])

    return enter
