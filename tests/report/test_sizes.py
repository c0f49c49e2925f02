"""How many workers a run had."""

from __future__ import annotations

from lockstep.metrics import Row
from lockstep.report.sizes import Sizes, sizes, together


def generation(step: int, workers: int) -> Row:
    return {"kind": "generation", "step": step, "workers": workers}


TRAIN: Row = {"kind": "train", "step": 100}


def test_a_run_that_was_left_alone_has_one_number() -> None:
    assert sizes([generation(0, 3), TRAIN], asked=7) == Sizes(3, 3, 3.0)
    assert sizes([generation(0, 3), TRAIN], asked=7).text == "3"


def test_every_number_counts_for_the_steps_that_it_worked() -> None:
    found = sizes([generation(0, 2), generation(25, 3), TRAIN], asked=3)
    assert (found.text, found.mean) == ("2-3", 2.75)


def test_steps_that_are_done_again_count_once() -> None:
    assert sizes([generation(0, 1), generation(80, 1), generation(50, 2), TRAIN], asked=1).mean == 180 / 130


def test_before_the_first_step_it_is_what_was_asked_for_or_was_there() -> None:
    assert sizes([], asked=2) == Sizes(2, 2, 2.0)
    assert sizes([generation(0, 2), generation(0, 1)], asked=2) == Sizes(1, 2, 1.0)


def test_runs_in_one_row() -> None:
    assert together([Sizes(2, 2, 2.0), Sizes(1, 2, 1.5)]) == Sizes(1, 2, 1.75)
