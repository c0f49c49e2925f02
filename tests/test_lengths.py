"""The length of a run that goes on with another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep import lengths
from lockstep.config import Schedule, Script
from lockstep.recipes import RECIPES
from lockstep.rows import Row

RECIPE = RECIPES["demo"]()
PLAIN = replace(RECIPE, schedule=Schedule(name="constant"))


def starts(*sessions: tuple[int, int | None]) -> list[Row]:
    rows: list[Row] = [{"kind": "start", "step": step, "num_steps": length} for step, length in sessions]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize(
    ("sessions", "course"),
    [
        ([(0, 12), (12, 14)], ((0, 12), (12, 14))),
        ([(0, 12), (5, 12), (8, 14)], ((0, 12), (8, 14))),
        ([(0, 12), (0, 14)], ((0, 14),)),
        ([(0, 12), (8, 14), (4, 12)], ((0, 12),)),
        ([(0, None), (8, None)], ((0, None), (8, None))),
    ],
)
def test_the_course_has_every_length_by_which_steps_that_count_were_done(
    sessions: list[tuple[int, int | None]], course: lengths.Course
) -> None:
    assert lengths.course([{"kind": "train", "step": 3}, *starts(*sessions)]) == course


@pytest.mark.parametrize(
    ("schedule", "is_followed"),
    [
        (Schedule(name="constant"), False),
        (Schedule(name="constant", warmup=0.1), True),
        (Schedule(name="constant", warmup=5, warmup_unit="steps"), False),
        (Schedule(name="cosine", unit="epochs"), True),
        (Schedule(name="step", unit="epochs", boundaries=(2,), factors=(0.1,)), False),
        (Schedule(name="step", boundaries=(0.5,), factors=(0.1,)), True),
    ],
)
def test_a_schedule_follows_the_length_where_something_of_it_is_in_fractions_or_ends_with_the_run(
    schedule: Schedule, is_followed: bool
) -> None:
    assert lengths.is_followed(replace(RECIPE, schedule=schedule)) == is_followed
    assert not lengths.is_followed(replace(RECIPE, schedule=schedule, script=Script(path="x.py")))


def test_a_new_length_is_spoken_of_only_where_the_steps_that_are_done_would_have_been_others() -> None:
    halved = replace(RECIPE, schedule=Schedule(name="step", boundaries=(0.5,), factors=(0.1,)))
    assert lengths.describe_change(halved, 12, 14, 6, 1000) is None
    assert lengths.describe_change(halved, 12, 12, 12, 1000) is None
    assert lengths.describe_change(PLAIN, 12, 14, 12, 1000) is None
    assert lengths.describe_change(halved, 12, 14, 12, 1000) == (
        "the 12 steps so far were those of a run of 12, whose schedule follows its length: the result is not that of a "
        "run of 14 steps from the start"
    )
    growing = replace(PLAIN, data=replace(PLAIN.data, sizes=((0.5, 16), (1.0, 32))))
    assert lengths.describe_change(growing, 12, 14, 6, 1000) is None
    assert lengths.describe_change(growing, 12, 14, 7, 1000) is not None
