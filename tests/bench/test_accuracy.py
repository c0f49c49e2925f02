"""Time to accuracy: minutes side by side, and trainings that are not done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import results
from bench.accuracy import BARE, DDP, OURS, to_accuracy
from bench.trainings import DATA_VARIABLE, Memory, Trained


def trained(*course: tuple[float, float]) -> Trained:
    minutes, top1 = course[-1]
    return Trained(top1, minutes, 100, course=course)


def test_the_time_is_that_of_the_first_evaluation_that_shows_it() -> None:
    run = trained((1.0, 0.5), (2.0, 0.81), (3.0, 0.79))
    assert run.minutes_to(0.8) == 2.0
    assert run.minutes_to(0.9) is None


def test_ratios_are_of_seeds_that_both_brought_there() -> None:
    fast, slow, never = trained((2.0, 0.9)), trained((4.0, 0.9)), trained((9.0, 0.7))
    found = {OURS: [fast] * 6, BARE: [slow] * 6, DDP: [slow] * 5 + [never]}
    plain = results.to_plain(to_accuracy(found, 0.8), {}, "", 1.0)
    bare, ddp = plain["figures"]
    assert (bare["median"], bare["interval"], bare["verdict"]) == (0.5, [0.5, 0.5], "met")
    assert (len(ddp["samples"]), ddp["verdict"]) == (5, "not resolved")
    assert plain["notes"] == [f"{DDP} reached it with 5 of 6 seeds."]


def test_a_finished_training_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, "/data")
    path, made = tmp_path / "session.json", trained((1.0, 0.5), (2.0, 0.75))
    assert Memory("x", True, path).recall("seed 0", lambda: made) == made
    again = Memory("x", True, path)
    assert again.recall("seed 0", lambda: pytest.fail("it was trained again")) == made
    again.forget()
    other = trained((3.0, 0.6))
    assert Memory("x", True, path).recall("seed 0", lambda: other) == other
