"""Learning rates: pure functions of the step."""

from __future__ import annotations

import math

import pytest

from lockstep.config import Schedule
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
