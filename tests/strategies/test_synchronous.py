"""Moments of an exchange that no schedule of real processes hits for sure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.generation import Generation, Member
from lockstep.strategies import catchup, synchronous
from tests.alone import set_up, tiny_recipe

TWO = Generation(
    number=2,
    members=(Member(0, "host:0"), Member(1, "host:1")),
    num_leaves=4,
    secret="",
    step=1,
    first_leaves=((0, 1), (2, 3)),
    behind=(0,),
)


class Dropped:
    """A group that was never connected."""

    def drop(self) -> None:
        pass


def test_a_promise_given_while_catching_up_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the step came, but a new generation was promised meanwhile: the step is not done, and nothing is
    exchanged in the old generation any more."""
    _, strategy, step = set_up(tiny_recipe())
    membership = step.membership
    membership.generation, membership.promised = TWO, 2
    announced = replace(TWO, number=3)

    def receive_and_promise(*_: Any) -> None:
        membership.promised = 3

    def settle_later(*_: Any, **__: Any) -> None:
        membership.generation = announced if membership.promised == 3 else TWO

    def transfer(*_: Any) -> None:
        raise AssertionError("an exchange in a generation that has been left")

    monkeypatch.setattr(strategy, "_connect", lambda generation: Dropped())
    monkeypatch.setattr(catchup, "receive_result", receive_and_promise)
    monkeypatch.setattr(membership, "wait", settle_later)
    monkeypatch.setattr(synchronous, "transfer", transfer)
    strategy.exchange(step)
    done = [step.done]
    monkeypatch.setattr(catchup, "receive_result", lambda *_: None)
    strategy.exchange(step)
    done.append(step.done)
    assert done == [False, True]
    strategy.close()
