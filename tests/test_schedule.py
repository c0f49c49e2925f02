"""Learning rates: pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lockstep import api
from lockstep.config import Schedule
from lockstep.errors import UserError
from lockstep.request import Request
from lockstep.rundirectory import RunDirectory
from lockstep.schedule import learning_rate


def test_step_schedule_changes_exactly_at_its_boundaries() -> None:
    rate = learning_rate(
        Schedule(name="step", lr=0.1, unit="steps", boundaries=(40, 60), factors=(0.1, 0.01)), 100, 10.0
    )
    assert [rate(step) for step in (0, 39, 40, 59, 60, 99)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_boundaries_may_be_epochs_or_fractions() -> None:
    epochs = learning_rate(Schedule(name="step", unit="epochs", boundaries=(2,), factors=(0.1,)), 100, 7.5)
    assert [epochs(14), epochs(15)] == pytest.approx([0.1, 0.01])
    fraction = learning_rate(Schedule(name="step", unit="fraction", boundaries=(0.5,), factors=(0.1,)), 100, 7.5)
    assert [fraction(49), fraction(50)] == pytest.approx([0.1, 0.01])


def test_the_first_step_has_the_rate_of_the_warm_up() -> None:
    """F43: the very first step is not a default that a hook corrects later."""
    rate = learning_rate(Schedule(name="constant", lr=0.4, unit="steps", warmup=10, warmup_from=0.25), 100, 10.0)
    assert rate(0) == pytest.approx(0.1)
    assert rate(5) == pytest.approx(0.25)
    assert rate(10) == rate(99) == pytest.approx(0.4)


def test_cosine_ends_at_its_final_factor() -> None:
    rate = learning_rate(Schedule(name="cosine", lr=1.0, warmup=0.1, final=0.05), 100, 10.0)
    assert rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi / 2)))
    assert rate(100) == pytest.approx(0.05)
    assert all(rate(step) > rate(step + 1) for step in range(10, 99))


def test_the_steps_of_the_slurm_system() -> None:
    """F38: 0.1 to 40k, 0.01 to 60k, 0.001 to 80k, then 0.0001."""
    schedule = Schedule(name="step", lr=0.1, unit="steps", boundaries=(40000, 60000, 80000), factors=(0.1, 0.01, 0.001))
    rate = learning_rate(schedule, 90000, 390.625)
    steps = (0, 39999, 40000, 59999, 60000, 79999, 80000, 89999)
    expected = [0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001]
    assert [rate(step) for step in steps] == pytest.approx(expected, rel=1e-12)


def test_the_ramp_of_the_slurm_system() -> None:
    """F39: 0.1 to 0.4 over 6,240 steps, in a straight line, then three drops."""
    drops = {"boundaries": (37440, 74880, 99840), "factors": (0.1, 0.01, 0.001)}
    schedule = Schedule(name="step", lr=0.4, unit="steps", warmup=6240, warmup_from=0.25, **drops)  # type: ignore[arg-type]
    rate = learning_rate(schedule, 112590, 1251.0)
    assert all(rate(step) == pytest.approx(0.1 + 0.3 * step / 6240, rel=1e-12) for step in range(0, 6241, 13))
    steps = (6240, 37439, 37440, 74879, 74880, 99839, 99840, 112589)
    expected = [0.4, 0.4, 0.04, 0.04, 0.004, 0.004, 0.0004, 0.0004]
    assert [rate(step) for step in steps] == pytest.approx(expected, rel=1e-12)


def test_the_epochs_of_the_horovod_tutorial() -> None:
    """F40: x0.1, x0.01, x0.001 from epochs 15, 25, 35 on; an epoch of 390.625 steps begins inside a batch."""
    schedule = Schedule(name="step", lr=0.01, unit="epochs", boundaries=(15, 25, 35), factors=(0.1, 0.01, 0.001))
    rate = learning_rate(schedule, 15625, Fraction(50000, 128))
    steps = (0, 5859, 5860, 9765, 9766, 13671, 13672, 15624)
    expected = [1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5]
    assert [rate(step) for step in steps] == pytest.approx(expected, rel=1e-12)


def test_a_boundary_is_not_moved_by_rounding() -> None:
    """In floating point 3 epochs of a third of 100 steps, or 0.28 of 25, are a little more than they are."""
    epochs = Schedule(name="step", unit="epochs", boundaries=(3,), factors=(0.0,))
    assert learning_rate(epochs, 1000, Fraction(100, 3))(100) == 0
    fraction = Schedule(name="step", boundaries=(0.28,), factors=(0.0,))
    assert 0.28 * 25 > 7
    assert learning_rate(fraction, 25, 1.0)(7) == 0


def test_triangular_rises_to_its_peak_and_falls_to_its_end() -> None:
    schedule = Schedule(name="triangular", lr=2.0, warmup_from=0.2, peak=0.25, final=0.1)
    rate = learning_rate(schedule, 100, 10.0)
    rising = [2.0 * (0.2 + 0.8 * step / 25) for step in range(25)]
    falling = [2.0 * (1.0 - 0.9 * (step - 25) / 75) for step in range(25, 101)]
    assert [rate(step) for step in range(101)] == pytest.approx(rising + falling)
    assert rate(500) == pytest.approx(0.2)
    in_epochs = learning_rate(replace(schedule, unit="epochs", peak=4), 100, 10.0)
    assert in_epochs(40) == 2.0 > max(in_epochs(39), in_epochs(41))
    assert learning_rate(replace(schedule, peak=0.0), 100, 10.0)(0) == 2.0


def test_a_warm_up_may_have_a_unit_of_its_own() -> None:
    schedule = Schedule(name="step", lr=1.0, unit="steps", boundaries=(50,), factors=(0.1,), warmup=2, warmup_from=0.5)
    assert learning_rate(schedule, 100, 10.0)(2) == 1.0
    rate = learning_rate(replace(schedule, warmup_unit="epochs"), 100, 10.0)
    assert [rate(step) for step in (0, 10, 20, 50)] == pytest.approx([0.5, 0.75, 1.0, 0.1])


@pytest.mark.parametrize("name", ["constant", "cosine", "triangular"])
def test_schedules_in_fractions_follow_the_length_and_those_in_steps_stay(name: str) -> None:
    fraction = Schedule(name=name, lr=1.0, peak=0.5, warmup=0.0 if name == "triangular" else 0.5)  # type: ignore[arg-type]
    short, long = (learning_rate(fraction, length, 10.0) for length in (100, 200))
    assert [short(step) for step in range(0, 100, 10)] == pytest.approx([long(step) for step in range(0, 200, 20)])
    steps = replace(fraction, unit="steps", peak=50, warmup=100 * fraction.warmup)
    short, long = (learning_rate(steps, length, 10.0) for length in (100, 200))
    assert [short(step) for step in range(51)] == [long(step) for step in range(51)]


def test_a_peak_beyond_the_end_is_refused_where_only_the_data_tell_the_number_of_steps(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not of a run that has begun, unless it is asked for another length."""
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: plan)
    settings = ["schedule.name=triangular", "schedule.warmup=0", "schedule.unit=steps"]
    sentence = "the peak at 900 steps is not inside the run: it has 4; set schedule.peak"
    with pytest.raises(UserError, match=sentence):
        api.train("demo", Request(epochs=0.05, settings=[*settings, "schedule.peak=900"]), run="late")
    assert not (workspace / "runs/late").exists()
    api.train("demo", Request(epochs=0.05, settings=[*settings, "schedule.peak=4"]), run="run")
    directory = RunDirectory(workspace / "runs/run")
    recipe, job = directory.read_config()
    directory.write_config(replace(recipe, schedule=replace(recipe.schedule, peak=900.0)), job)
    api.resume("run")
    with pytest.raises(UserError, match="the peak at 900 steps"):
        api.resume("run", Request(epochs=0.06))
