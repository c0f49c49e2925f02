"""How many workers a run really had, which deaths, joins and resizes change on the way, and how fast each was. Pure."""

from __future__ import annotations

import statistics
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


def was_resized(rows: list[metrics.Row]) -> bool:
    """Whether other numbers were asked for on the way: by `lockstep resize`, or by a resume. Deaths do not count."""
    begins, asked = False, set()
    for row in rows:
        if row.get("kind") == "start":
            begins = True
        elif begins and row.get("kind") == "generation" and "workers" in row:
            begins = False
            asked.add(row["workers"])
    return len(asked) > 1 or any(row.get("kind") == "resize" for row in rows)


def speed_per_worker(rows: list[metrics.Row], asked: int) -> float | None:
    """Images per second: the median over the rows of metrics, each divided by the workers that its steps had."""
    numbers, done, speeds = [(0, asked)], 0, []
    for row in rows:
        kind, step = row.get("kind"), int(row.get("step", 0))
        if kind in ("start", "rollback"):
            done = step
        elif kind == "generation" and "workers" in row:
            numbers = [*(one for one in numbers if one[0] < step), (step, int(row["workers"]))]
        elif kind == "train":
            if "images_per_second" in row:
                speeds.append(row["images_per_second"] / _mean(numbers, done, step))
            done = step
    return statistics.median(speeds) if speeds else None


def _mean(numbers: list[tuple[int, int]], first: int, end: int) -> float:
    """Over the steps in between; `numbers` says from which step on there were how many."""
    parts = pairwise([*numbers, (end, 0)])
    weights = [(n, max(0, min(end, until) - max(first, begin))) for (begin, n), (until, _) in parts]
    total = sum(weight for _, weight in weights)
    return sum(n * weight for n, weight in weights) / total if total else numbers[-1][1]
