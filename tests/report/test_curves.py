"""The course of a run, from rows as `metrics.jsonl` has them."""

from __future__ import annotations

from lockstep.report.curves import course

ROWS = [
    {"kind": "start", "step": 0, "time": 100.0},
    {"kind": "generation", "step": 0, "joined": [0, 1], "causes": ["start"], "time": 101.0},
    {"kind": "train", "step": 10, "loss": 2.0, "images_per_second": 50.0, "time": 110.0},
    {"kind": "eval", "step": 10, "top1": 0.5, "time": 112.0},
    {"kind": "start", "step": 10, "time": 1000.0},
    {"kind": "generation", "step": 10, "joined": [0, 1], "causes": ["start"], "time": 1000.5},
    {"kind": "death", "step": 15, "worker": 1, "role": "worker", "how": "was killed by SIGKILL", "time": 1003.0},
    {"kind": "generation", "step": 16, "joined": [2], "causes": ["join"], "time": 1004.0},
    {"kind": "train", "step": 20, "loss": 1.0, "images_per_second": 70.0, "time": 1005.0},
    {"kind": "eval", "step": 20, "top1": 0.75, "time": 1008.0},
]


def test_the_time_between_two_sessions_does_not_count() -> None:
    found = course(ROWS)
    assert [(point.step, point.seconds, point.value) for point in found.top1] == [(10, 12.0, 0.5), (20, 20.0, 0.75)]
    assert [point.seconds for point in found.loss] == [10.0, 17.0]
    assert found.seconds == 20.0


def test_the_time_to_an_accuracy_is_that_of_the_first_evaluation_that_shows_it() -> None:
    found = course(ROWS)
    assert found.seconds_to(0.5) == 12.0
    assert found.seconds_to(0.51) == 20.0
    assert found.seconds_to(0.8) is None


def test_deaths_and_joins_are_there_and_the_beginning_is_none() -> None:
    found = course(ROWS).happenings
    assert [(one.step, one.seconds, one.what) for one in found] == [
        (15, 15.0, "worker 1 was killed by SIGKILL"),
        (16, 16.0, "worker 2 joined"),
    ]


def test_those_who_take_the_place_of_everyone_join_too() -> None:
    """Sessions begin with a generation of the same cause, and in them nobody joins anybody."""
    after = {"kind": "generation", "step": 18, "joined": [3, 4], "causes": ["start"], "time": 1005.0}
    assert [one.what for one in course([*ROWS, after]).happenings][1:] == ["worker 2 joined", "worker 3, 4 joined"]


def test_evaluations_from_elsewhere_count_from_when_their_checkpoint_was_written() -> None:
    """And not from when somebody came to evaluate it; without that they have their place among the steps alone."""
    written = {"kind": "checkpoint", "step": 15, "time": 1004.0}
    later = [{"kind": "eval", "step": 15, "top1": 0.6, "time": 9000.0}]
    found = course([*ROWS, written], later)
    assert [(point.step, point.seconds) for point in found.top1] == [(10, 12.0), (15, 16.0), (20, 20.0)]
    assert found.seconds_to(0.6) == 16.0
    unknown = course(ROWS, later)
    assert [(point.step, point.seconds) for point in unknown.top1] == [(10, 12.0), (15, None), (20, 20.0)]
    assert unknown.seconds_to(0.6) == 20.0


def test_the_speed_is_the_median_and_a_run_without_rows_has_none() -> None:
    assert course(ROWS).images_per_second == 60.0
    assert course([]).images_per_second is None
