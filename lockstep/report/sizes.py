"""How many workers a run really had, which deaths, joins and resizes change on the way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from lockstep import metrics


@dataclass(frozen=True)
class Sizes:
    least: int
    most: int
    mean: float
    """Over the steps."""

    @property
    def text(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least}-{self.most}"


def together(several: list[Sizes]) -> Sizes:
    """Of some runs in one."""
    mean = sum(one.mean for one in several) / len(several)
    return Sizes(min(one.least for one in several), max(one.most for one in several), mean)


def sizes(rows: list[metrics.Row], asked: int) -> Sizes:
    """From the rows of `metrics.jsonl`; as many as were asked for, if nobody ever worked."""
    generations = [row for row in rows if row.get("kind") == "generation" and "workers" in row]
    found = [int(row["workers"]) for row in generations] or [asked]
    last = max((int(row["step"]) for row in rows if row.get("kind") in ("train", "checkpoint")), default=0)
    ends = pairwise([*(int(row["step"]) for row in generations), last])
    weights = [max(0, end - begin) for begin, end in ends] or [0]  # below zero where steps were done again
    total = sum(weights)
    mean = sum(n * weight for n, weight in zip(found, weights, strict=True)) / total if total else float(found[-1])
    return Sizes(min(found), max(found), mean)
