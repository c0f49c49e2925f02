"""What a difference means: exact intervals of medians, and verdicts."""

from __future__ import annotations

import math

import pytest

from bench.ratio import MIN_ROUNDS, Estimate, Target, estimate, lower_rank, paired, verdict


def test_the_interval_of_a_median_is_that_of_order_statistics() -> None:
    # The extremes of 6 samples enclose the median with 1 - 2 / 2**6 = 96.9 %; of 5 with 93.8 %.
    assert lower_rank(MIN_ROUNDS) == 0
    assert lower_rank(MIN_ROUNDS - 1) is None
    assert lower_rank(9) == 1, "1 - 2 * (1 + 9) / 2**9 is 96.1 %"
    assert estimate([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]) == Estimate(3.5, 1.0, 6.0)
    assert estimate([2.0, 1.0]) == Estimate(1.5, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("low", "high", "target", "expected"),
    [
        (0.95, 1.10, Target.not_behind(), "met"),
        (0.80, 0.91, Target.not_behind(), "not met"),
        (0.90, 1.10, Target.not_behind(), "not resolved"),
        (-math.inf, math.inf, Target.not_behind(), "not resolved"),
        (0.50, 1.05, Target.not_above(), "met"),
        (1.10, 1.50, Target.not_above(), "not met"),
        (1.00, 1.20, Target.not_above(), "not resolved"),
        (1.85, 1.99, Target.linear(2), "met"),
        (1.60, 1.80, Target.linear(2), "not met"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, target: Target, expected: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high), target) == expected


def test_ratios_are_of_the_same_round() -> None:
    assert paired([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
