"""Which figure says how good an evaluation is, and whether more or less of it is better. Pure.

`metric` of the recipe if it has one; otherwise top1, and the loss where there are no classes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.config import Recipe

CROSS_ENTROPY = "cross-entropy"
"""The name of the built-in loss."""
TAKEN = (
    *("kind", "step", "time", "loss", "top1", "top5", "examples", "metric", "lr", "spans", "digest", "confusion"),
    *("steps_per_second", "images_per_second", "sent_bytes", "received_bytes", "dropped_leaves", "held_out"),
    *("counted", "staleness", "staleness_max", "reissued"),
)
"""What rows of metrics have besides: no metric may be called so."""


@dataclass(frozen=True)
class Goal:
    name: str = "top1"
    is_lower: bool = False
    """Whether less of it is better."""

    def is_better(self, one: float, other: float) -> bool:
        """Whether `one` is better; anything is better than what is no finite number."""
        if not (math.isfinite(one) and math.isfinite(other)):
            return math.isfinite(one)
        return one < other if self.is_lower else one > other

    def best(self, values: Collection[float]) -> float | None:
        numbers = [value for value in values if math.isfinite(value)]
        if not numbers:
            return None
        return min(numbers) if self.is_lower else max(numbers)

    def best_mark(self, best: float | None) -> dict[str, float]:
        """How a row says what was the best so far: not at all, as long as nothing was a number."""
        return {} if best is None else {f"best_{self.name}": best}

    def text(self, value: float) -> str:
        return as_text(self.name, value)


def as_text(name: str, value: float) -> str:
    """A figure as tables and lines show it: shares of hits in per cent."""
    return f"{value:.2%}" if name in ("top1", "top5") else f"{value:.4g}"


def metric_name(recipe: Recipe) -> str | None:
    return None if recipe.metric is None else recipe.metric.rpartition(":")[2]


def own_goal(recipe: Recipe) -> Goal | None:
    """What the recipe's own metric aims at; None if it has none."""
    name = metric_name(recipe)
    return None if name is None else Goal(name, recipe.better == "lower")


def goal_of(own: Goal | None, figures: Collection[str]) -> Goal:
    """What is aimed at, where an evaluation has these figures."""
    return own or (Goal() if "top1" in figures else Goal("loss", is_lower=True))


def mark_of(own: Goal | None) -> dict[str, str]:
    """How a row says which of its figures is the recipe's own metric."""
    return {} if own is None else {"metric": own.name}


def scores(row: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a row besides the loss, by name."""
    names = ("top1", "top5", *([row["metric"]] if "metric" in row else []))
    return {name: float(row[name]) for name in names if name in row}


def best_in(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """The figure of an evaluation that says what is best, and the best value so far; None if nothing was a number."""
    found = [name for name in row if name.startswith("best_") and math.isfinite(row[name])]
    return (found[0].removeprefix("best_"), float(row[found[0]])) if found else None
