"""Failures on purpose, for tests and the demo, by `LOCKSTEP_INJECT` in the environment.

    LOCKSTEP_INJECT="kill worker=1 step=3 phase=exchange; stop worker=0 step=5 phase=forward"

A rule strikes its own process when it enters a phase (a span, see `spans.py`) of a step, or of any step if it names
none: `kill` and `stop` by a signal, `flip-weights` and `flip-momentum` by a flipped bit, `flip-gradient` in the first
leaf of the step. It strikes once; replacements have other numbers, so they are not struck by it. `slow worker=1
factor=10` makes every leaf of a worker take ten times as long, by sleeping. The phases of a server are `push` and
`result`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.exchange.flat import Vector
    from lockstep.replica import Replica
    from lockstep.step import Leaf
    from lockstep.strategies.synchronous import Synchronous

VARIABLE = "LOCKSTEP_INJECT"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
PHASED = (*SIGNALS, "flip-weights", "flip-momentum")
"""Actions that strike where a phase begins."""
ACTIONS = (*PHASED, "flip-gradient", "slow")
FIELDS = ("worker", "step", "phase", "factor")
PHASES = ("data", "forward", "backward", "exchange", "optimizer", "evaluate", "checkpoint", "report", "verify")
PHASES_OF_SERVERS = ("push", "result")
EXAMPLE = "as in `kill worker=1 step=3 phase=exchange`"


@dataclass(frozen=True)
class Rule:
    action: str
    worker: int
    step: int | None
    phase: str
    factor: float = 1.0

    def is_at(self, step: int, phase: str) -> bool:
        return self.phase == phase and self.step in (None, step)

    @staticmethod
    def parse(text: str) -> Rule:
        action, *pairs = text.split()
        fields = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
        _check(text.strip(), action, fields)
        try:
            step, factor = int(fields["step"]) if "step" in fields else None, float(fields.get("factor", 1))
            return Rule(action, int(fields["worker"]), step, fields.get("phase", ""), factor)
        except ValueError:
            raise UserError(f"{VARIABLE}: a number is missing in {text.strip()!r}: write it {EXAMPLE}") from None


def _check(text: str, action: str, fields: dict[str, str]) -> None:
    if action not in ACTIONS:
        raise unknown(f"action in {VARIABLE}", action, ACTIONS)
    for name in fields:
        if name not in FIELDS:
            raise unknown(f"field in {VARIABLE}", name, FIELDS)
    needed = {"worker": True, "phase": action in PHASED, "step": action == "flip-gradient", "factor": action == "slow"}
    for name in needed:
        if needed[name] and not fields.get(name):
            raise UserError(f"{VARIABLE}: {text!r} names no {name}: give {name}=..., {EXAMPLE}")
    if fields.get("phase", "data") not in (*PHASES, *PHASES_OF_SERVERS):
        raise unknown(f"phase in {VARIABLE}", fields["phase"], (*PHASES, *PHASES_OF_SERVERS))


def check() -> None:
    """Refuse rules that nobody would follow, before anything starts."""
    _all_rules()


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


def install(worker: int, step: Callable[[], int], replica: Replica, strategy: Synchronous) -> None:
    """Let this process follow the rules that are about it, if there are any."""
    mine = _rules_of(worker)
    if not mine:
        return

    def enter(phase: str) -> None:
        for rule in list(mine):
            if rule.is_at(step(), phase) and rule.action not in ("flip-gradient", "slow"):
                mine.remove(rule)
                if rule.action in SIGNALS:
                    os.kill(os.getpid(), SIGNALS[rule.action])
                else:
                    flip(_tensor(rule.action, replica))

    def contribution(leaf: Leaf) -> Vector:
        started = time.monotonic()
        vector = compute(leaf)
        for rule in [rule for rule in mine if rule.action == "slow"]:
            with replica.spans("forward"):
                time.sleep((rule.factor - 1) * (time.monotonic() - started))
        for rule in list(mine):
            if rule.action == "flip-gradient" and rule.step == leaf.step:
                mine.remove(rule)
                flip(vector.flat)
        return vector

    replica.spans.on_enter = enter
    if any(rule.action in ("flip-gradient", "slow") for rule in mine):
        compute = strategy.contribution
        strategy.contribution = contribution  # type: ignore[method-assign]


def striker(server: int) -> Callable[[int, str], None]:
    """What a server calls with its step and phase, so that it follows the rules that are about it."""
    mine = _rules_of(server)

    def enter(step: int, phase: str) -> None:
        for rule in mine:
            if rule.is_at(step, phase):
                os.kill(os.getpid(), SIGNALS[rule.action])

    return enter


def _rules_of(worker: int) -> list[Rule]:
    return [rule for rule in _all_rules() if rule.worker == worker]


def _all_rules() -> list[Rule]:
    return [Rule.parse(text) for text in os.environ.get(VARIABLE, "").split(";") if text.strip()]


def _tensor(action: str, replica: Replica) -> Tensor:
    if action == "flip-weights":
        return replica.weights
    state = replica.optimizer.state[replica.optimizer.param_groups[0]["params"][0]]
    momentum: Tensor = state["momentum_buffer"]
    return momentum


def flip(tensor: Tensor) -> None:
    """Flip one bit of the first number, as a cosmic ray might: the lowest of the exponent, which doubles or halves."""
    import torch

    torch.as_strided(tensor.data, (1,), (1,)).view(torch.int32).bitwise_xor_(1 << 23)
