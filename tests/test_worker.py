"""What a worker does after its last step."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.generation import solo
from lockstep.worker import stay
from tests.alone import set_up, tiny_recipe


class Over(Exception):  # noqa: N818
    """Enough has been seen."""


def test_whoever_has_finished_takes_part_in_every_generation() -> None:
    """Also in one that is announced while the one before it is being entered: someone may need its last result."""
    _, strategy, step = set_up(tiny_recipe())
    membership = step.membership
    entered: list[int] = []

    def announce(number: int) -> None:
        with membership.changed:
            membership.generation = replace(solo(4), number=number)
            membership.promised = number
            membership.changed.notify_all()

    def enter(_: Any) -> None:
        entered.append(membership.current.number)
        if entered == [1]:
            announce(2)
        elif entered == [1, 2]:
            threading.Timer(0.05, announce, [3]).start()
        else:
            raise Over

    reporter = SimpleNamespace(resend=lambda: None)
    worker = SimpleNamespace(membership=membership, strategy=SimpleNamespace(enter=enter), reporter=reporter)
    with pytest.raises(Over):
        stay(worker)  # type: ignore[arg-type]
    assert entered == [1, 2, 3]
    strategy.close()
