"""How many workers a run had."""

from __future__ import annotations

from lockstep.metrics import Row
from lockstep.report.sizes import Sizes, sizes, speed_per_worker, together, was_resized


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


def start(step: int) -> Row:
    return {"kind": "start", "step": step}


def train(step: int, speed: float) -> Row:
    return {"kind": "train", "step": step, "images_per_second": speed}


def test_the_speed_of_a_worker_is_that_of_the_rows_in_which_it_worked() -> None:
    """A run that was resized in the middle is neither faster nor slower for each worker."""
    many = [generation(0, 2), *(train(step, 200.0) for step in (10, 20, 30))]
    few = [generation(30, 1), *(train(step, 100.0) for step in (40, 50))]
    assert speed_per_worker([start(0), *many, *few], asked=1) == 100.0
    assert speed_per_worker([start(0), *many, {"kind": "end"}], asked=2) == 100.0
    assert speed_per_worker([start(0), generation(0, 2)], asked=2) is None


def test_a_row_in_which_the_number_changed_counts_by_its_steps() -> None:
    assert speed_per_worker([start(0), generation(0, 4), generation(5, 2), train(10, 300.0)], asked=4) == 100.0
    again = [
        start(0),
        generation(0, 4),
        generation(5, 2),
        train(10, 300.0),
        start(8),
        generation(8, 1),
        train(10, 90.0),
    ]
    assert speed_per_worker(again, asked=1) == 95.0


def test_a_resume_with_another_number_is_a_resize_and_a_death_is_none() -> None:
    killed = [start(0), generation(0, 2), generation(5, 1)]
    assert not was_resized(killed)
    assert not was_resized([*killed, start(8), generation(8, 2)])
    assert was_resized([*killed, start(8), generation(8, 1)])
    assert was_resized([*killed, {"kind": "resize", "workers": 3, "step": 6}])
