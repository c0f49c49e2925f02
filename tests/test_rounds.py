"""Rounds of steps: where they end, and what falls due there."""

from __future__ import annotations

import pytest

from lockstep import checkpoint
from lockstep.config import Checkpoints
from lockstep.errors import UserError
from lockstep.rounds import EVERY_STEP, Rounds


def ends_of(rounds: Rounds) -> list[int]:
    """The ends of all rounds of a run."""
    ends = [0]
    while ends[-1] < (rounds.num_steps or 0):
        ends.append(rounds.end(ends[-1]))
    return ends[1:]


def test_rounds_end_at_multiples_and_where_the_recipe_ends() -> None:
    rounds = Rounds(10, 24)
    assert ends_of(rounds) == [10, 20, 24]
    assert [rounds.end(index) for index in (0, 9, 10, 19, 20, 23)] == [10, 10, 20, 20, 24, 24]
    assert [rounds.before(done) for done in (10, 20, 24)] == [0, 10, 20]
    assert ends_of(Rounds(100, 24)) == [24]
    assert ends_of(Rounds(1, 3)) == [1, 2, 3]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 30])
@pytest.mark.parametrize("every", [0, 1, 2, 3, 7, 12])
def test_what_is_due_inside_a_round_happens_once_at_its_end(length: int, every: int) -> None:
    rounds = Rounds(length, 24)
    ends = ends_of(rounds)
    planned = [step for step in range(1, 25) if every and step % every == 0]
    expected = sorted({min(end for end in ends if end >= step) for step in planned})
    assert [end for end in ends if rounds.is_due(every, end)] == expected


def test_where_a_round_is_a_step_all_is_due_when_it_is_planned() -> None:
    assert [done for done in range(10) if EVERY_STEP.is_due(3, done)] == [0, 3, 6, 9]
    assert [EVERY_STEP.end(index) for index in (0, 1, 7)] == [1, 2, 8]
    EVERY_STEP.check_end(7)


def test_checkpoints_wait_for_the_end_of_the_round() -> None:
    def due(config: Checkpoints, rounds: Rounds) -> list[int]:
        return [done for done in ends_of(rounds) if checkpoint.is_due(config, done, 7.5, rounds)]

    assert due(Checkpoints(every_steps=6), Rounds(4, 22)) == [8, 12, 20]
    assert due(Checkpoints(every_steps=0, every_epochs=1), Rounds(4, 22)) == [8, 16]
    assert due(Checkpoints(every_steps=0, every_epochs=1), Rounds(1, 22)) == [8, 15]


@pytest.mark.parametrize(("last", "ends"), [(7, "10"), (13, "10 or 20"), (21, "20 or 24")])
def test_an_end_inside_a_round_is_refused_with_the_nearest_ends(last: int, ends: str) -> None:
    with pytest.raises(UserError, match=f"inside a round of 10 local steps: take --stop-at {ends}$"):
        Rounds(10, 24).check_end(last)
    for good in (10, 20, 24):
        Rounds(10, 24).check_end(good)
