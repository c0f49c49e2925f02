"""Evaluations as they come in, leaf by leaf, and the best one so far. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lockstep.evaluate import LeafResult, combine
from lockstep.goal import Goal, goal_of, mark_of


class Contradiction(Exception):  # noqa: N818
    """A leaf was evaluated twice, with different results, which must not happen."""


@dataclass
class Scores:
    num_leaves: int
    best: dict[str, Any] | None = None
    evaluated: int = -1
    """The last step whose evaluation is complete."""
    marks: dict[str, Any] = field(default_factory=dict)
    """What rows say of the data, see `Plan.marks`."""
    own: Goal | None = None
    """What the recipe's own metric aims at; None if it has none."""
    _results: dict[int, dict[int, LeafResult]] = field(default_factory=dict)

    def add(self, step: int, leaf: int, result: LeafResult, num_leaves: int | None = None) -> dict[str, Any] | None:
        """Take note of a leaf; the figures of the whole when it was the last one. Only a script says how many there
        are."""
        if step <= self.evaluated:
            return None
        results = self._results.setdefault(step, {})
        if repr(results.setdefault(leaf, result)) != repr(result):  # a loss that is no number is not equal to itself
            raise Contradiction(f"leaf {leaf} of the test set was evaluated twice, with different results")
        if len(results) < (self.num_leaves if num_leaves is None else num_leaves):
            return None
        self.evaluated = step
        return self.rate(step, self._results.pop(step))

    def rate(self, step: int, results: dict[int, LeafResult]) -> dict[str, Any]:
        """The figures of an evaluation that is complete, next to the best so far."""
        figures = combine(results) | mark_of(self.own)
        goal = goal_of(self.own, figures)
        if goal.is_better(figures[goal.name], (self.best or {}).get(goal.name, math.nan)):
            self.best = {goal.name: figures[goal.name], "step": step}
        return {**figures, **goal.best_mark((self.best or {}).get(goal.name)), **self.marks}

    def known_leaves(self, step: int) -> tuple[int, ...]:
        """The leaves of an evaluation under way that need not be done again."""
        return tuple(sorted(self._results.get(step, {})))

    def forget_after(self, step: int) -> None:
        """Evaluations of states that nobody has any more: those who go on will come there again."""
        self._results = {at: results for at, results in self._results.items() if at <= step}

    def go_back(self, evaluated: int, best: dict[str, Any] | None) -> None:
        """Forget what came after a state to which the run returns."""
        self.evaluated, self.best = evaluated, best
        self._results.clear()
