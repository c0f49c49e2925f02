"""`--stop-at`: training ends early, the schedule does not, and a resume goes on as if nothing had been."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import injection
from lockstep.config import Schedule
from lockstep.recipes.demo import demo
from lockstep.request import with_end
from lockstep.schedule import learning_rate
from tests.conftest import Command, digest_in
from tests.test_bad_input import refused
from tests.test_resume import TINY, rows_of

# The cosine of the demo, in fractions of the length, so that every step has another rate.
SHORT = [*TINY, "--steps", "12", "--set", "checkpoints.every_steps=2"]


def stored_end(run: str) -> int | None:
    end: int | None = json.loads(Path(f"runs/{run}/config.json").read_text())["recipe"]["stop_at"]
    return end


@pytest.mark.timeout(240)
def test_a_run_that_stops_early_goes_on_to_the_digest_of_one_that_did_not(lockstep: Command) -> None:
    """F43 F76: interrupted before its end, stopped there, then resumed to the whole length; the learning rate that is
    logged is the formula's on the first step, and on the first step after every resume."""
    whole = digest_in(lockstep("train", *SHORT, "--workers", "1", "--run", "whole"))
    with injection.rules("kill worker=0 step=3 phase=forward"):
        killed = lockstep("train", *SHORT, "--stop-at", "5", "--no-replace", "--workers", "1", "--run", "cut")
    assert killed.returncode == 1
    stopped = lockstep("resume", "cut")
    assert "5 of 12 steps" in stopped.stderr
    assert "7 steps are left (--stop-at); go on with: lockstep resume cut" in stopped.stdout
    assert digest_in(stopped) != whole
    assert lockstep("digest", "cut").stdout.strip() == digest_in(stopped)
    assert [row["step"] for row in rows_of("cut", "eval")] == [5]
    assert "has 5 steps already, more than the 4" in refused(lockstep("resume", "cut", "--stop-at", "4"))
    assert "stop_at must be at least 1" in refused(lockstep("resume", "cut", "--stop-at", "0"))
    assert stored_end("cut") == 5
    resumed = lockstep("resume", "cut", "--workers", "2")
    assert digest_in(resumed) == whole
    assert stored_end("cut") is None
    rate = learning_rate(Schedule(name="cosine", lr=0.05, warmup=0.1), 12, 625.0)
    assert [row["lr"] for row in rows_of("cut", "train")] == [rate(step) for step in range(12)]
    assert [row["loss"] for row in rows_of("cut", "train")] == [row["loss"] for row in rows_of("whole", "train")]


@pytest.mark.parametrize(
    ("stored", "asked", "done", "end"),
    [(None, None, 4, None), (5, None, 4, 5), (5, None, 5, None), (5, 9, 5, 9), (5, 9, 4, 9), (None, 9, 4, 9)],
)
def test_where_a_run_that_is_continued_ends(stored: int | None, asked: int | None, done: int, end: int | None) -> None:
    assert with_end(replace(demo(), stop_at=stored), asked, done).stop_at == end
