"""A histogram as it travels from a worker to a logger: a few numbers. They are made in `pictures`; no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_BINS = 30


@dataclass(frozen=True)
class Histogram:
    """Bins of equal width between two edges. What is not finite is counted nowhere."""

    low: float
    high: float
    counts: tuple[int, ...]
    minimum: float
    maximum: float
    sum: float
    sum_of_squares: float

    @property
    def edges(self) -> list[float]:
        """One more than there are bins."""
        width = (self.high - self.low) / len(self.counts)
        return [*(self.low + width * bin_ for bin_ in range(len(self.counts))), self.high]

    @staticmethod
    def from_plain(plain: Any) -> Histogram:
        """What `vars` gave on the other side of a connection; one of ValueError, TypeError, KeyError if it is not."""
        counts = tuple(int(count) for count in plain["counts"])
        if not 0 < len(counts) <= MAX_BINS:
            raise ValueError(f"a histogram of {len(counts)} bins")
        names = ("low", "high", "minimum", "maximum", "sum", "sum_of_squares")
        return Histogram(counts=counts, **{name: float(plain[name]) for name in names})
