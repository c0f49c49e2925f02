"""Losses and metrics of the user's own: what they may return, and how the best is told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from lockstep.config import Recipe
from lockstep.errors import UserError
from lockstep.evaluate import LeafResult, combine
from lockstep.goal import Goal, goal_of, own_goal, scores
from lockstep.objective import NOT_COUNTED, Objective
from lockstep.reporter import figures
from lockstep.supervisor.scores import Scores

FUNCTIONS = """
def each(outputs, targets):
    return (outputs - targets).abs()[:, 0]
def total(outputs, targets):
    return (outputs - targets).abs().sum()
def table(outputs, targets):
    return outputs - targets
def mean(outputs, targets):
    return (outputs - targets).square().mean()
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(FUNCTIONS)
    return f"{tmp_path}/own.py"


def objective(loss: str = "cross-entropy", metric: str | None = None, num_classes: int | None = None) -> Objective:
    return Objective(Recipe(name="own", loss=loss, metric=metric), num_classes)


OUTPUTS, TARGETS = torch.tensor([[1.0], [2.0], [4.0]]), torch.zeros(3, 1)


def test_a_metric_is_a_value_for_each_example_or_their_sum(functions: str) -> None:
    for name in ("each", "total"):
        found = objective(f"{functions}:mean", f"{functions}:{name}").metric(OUTPUTS, TARGETS)
        assert found is not None
        assert (found.item(), found.dtype) == (7.0, torch.float64)
    with pytest.raises(UserError, match=r"returned a tensor of shape \(3, 1\) for 3 examples: return a value for each"):
        objective(f"{functions}:mean", f"{functions}:table").metric(OUTPUTS, TARGETS)
    with pytest.raises(UserError, match=r"returned a tensor of shape \(3, 1\), not one number: return the mean"):
        objective(f"{functions}:table").loss(OUTPUTS, TARGETS)


def test_the_counts_of_a_leaf_say_that_there_are_no_classes(functions: str) -> None:
    own = objective(f"{functions}:mean", f"{functions}:each")
    counts = torch.zeros(own.num_counts)
    own.take_down(counts, own.loss(OUTPUTS, TARGETS), OUTPUTS, TARGETS)
    assert counts.tolist() == [7.0, NOT_COUNTED, NOT_COUNTED, 7.0]
    recipe = Recipe(name="own", metric="own.py:each", leaves=2, global_batch=6)
    row = figures([counts.tolist(), [1.0, -1.0, -1.0, 2.0]], recipe)
    assert row == {"loss": 4.0, "each": 1.5, "metric": "each"}
    assert scores(row) == {"each": 1.5}


def test_hits_are_counted_where_the_outputs_are_one_for_each_class(functions: str) -> None:
    logits, labels = torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])
    found = objective(f"{functions}:mean", num_classes=2).hits(logits, labels)
    assert found is not None
    assert [int(one) for one in found] == [1, 2]
    assert objective(f"{functions}:mean", num_classes=5).hits(logits, labels) is None
    assert objective(f"{functions}:mean").hits(logits, labels) is None


def test_an_evaluation_adds_the_metric_in_the_order_of_leaves() -> None:
    values = [1e16, 1.0, -1e16, 1.0]
    results = {leaf: LeafResult(1, None, None, 0.5, sums=(("error", values[leaf]),)) for leaf in (2, 0, 3, 1)}
    assert combine(results) == {"examples": 4, "loss": 0.5, "error": 0.25}


def test_the_best_follows_the_metric_in_its_direction_and_the_loss_without_one() -> None:
    lower = own_goal(Recipe(name="own", metric="own.py:error", better="lower"))
    assert lower == Goal("error", is_lower=True)
    held = Scores(1, own=lower)
    values = ((1, 4.0), (2, 2.0), (3, 6.0))
    rows = [held.add(step, 0, LeafResult(2, 1, 2, 1.0, sums=(("error", value),))) for step, value in values]
    assert [row and row["best_error"] for row in rows] == [2.0, 1.0, 1.0]
    assert [row and row["metric"] for row in rows] == ["error"] * 3
    assert held.best == {"error": 1.0, "step": 2}
    assert goal_of(None, {"loss", "top1"}) == Goal("top1")
    alone = Scores(1)
    losses = ((1, 3.0), (2, 1.0), (3, 2.0))
    found = [alone.add(step, 0, LeafResult(1, None, None, loss)) for step, loss in losses]
    assert [row and row["best_loss"] for row in found] == [3.0, 1.0, 1.0]


def test_anything_is_better_than_what_is_no_number() -> None:
    goal = Goal("error", is_lower=True)
    assert goal.is_better(5.0, math.nan)
    assert not goal.is_better(math.nan, 5.0)
    assert goal.best([math.nan, 3.0, 2.0]) == 2.0
    assert goal.best([math.nan]) is None
