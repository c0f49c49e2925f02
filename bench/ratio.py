"""What a difference means on a noisy machine: medians of paired rounds, exact 95 % intervals, and verdicts.

Two contestants are never compared across rounds: in each round both run, one after the other, and give one ratio. The
interval of the median comes from order statistics, which assumes nothing about how the noise is distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

NOISE = 0.08
"""Differences below this share are not told from noise on the development machine (two cores of a shared host)."""

CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""The fewest samples whose extremes enclose the median with 95 % confidence: 1 - 2 / 2**6."""


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    bound: float
    at_least: bool
    """Whether the figure has to be at least the bound, or at most."""

    @staticmethod
    def not_behind() -> Target:
        """A ratio of speeds that is not behind 1 beyond the noise."""
        return Target(1.0 - NOISE, at_least=True)

    @staticmethod
    def not_above() -> Target:
        """A ratio of times or sizes that is not above 1 beyond the noise."""
        return Target(1.0 + NOISE, at_least=False)

    @staticmethod
    def linear(processes: int) -> Target:
        """As many times the speed of one process, less the noise."""
        return Target(processes * (1.0 - NOISE), at_least=True)


@dataclass(frozen=True)
class Estimate:
    """A median and the interval that holds the true one with 95 % confidence; infinite where rounds are too few."""

    median: float
    low: float
    high: float


def estimate(samples: Sequence[float]) -> Estimate:
    ordered = sorted(samples)
    rank = lower_rank(len(ordered))
    if rank is None:
        return Estimate(median(ordered), -math.inf, math.inf)
    return Estimate(median(ordered), ordered[rank], ordered[-1 - rank])


def lower_rank(count: int) -> int | None:
    """The largest r such that samples r and -1-r enclose the median with confidence; None if not even the extremes do.

    The number of samples below the median is binomial with probability 1/2.
    """
    best, tail = None, 0.0
    for rank in range((count + 1) // 2):
        tail += comb(count, rank) / 2**count
        if 1.0 - 2.0 * tail < CONFIDENCE:
            break
        best = rank
    return best


def verdict(figure: Estimate, target: Target) -> str:
    """ "met" or "not met" only if the whole interval says so."""
    if target.at_least:
        met, missed = figure.low >= target.bound, figure.high < target.bound
    else:
        met, missed = figure.high <= target.bound, figure.low > target.bound
    return "met" if met else "not met" if missed else "not resolved"


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """One ratio per round."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]
