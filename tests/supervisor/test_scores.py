"""Evaluations as they come in: how many leaves there are, what is the best, and what contradicts itself."""

from __future__ import annotations

import math

import pytest

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events, messages
from lockstep.supervisor.scores import Contradiction, Scores

LEAF = {"type": "evaluation", "step": 5, "leaf": 1, "leaves": 2, "count": 3, "top1": None, "top5": None, "loss": 0.5}


def test_a_script_says_how_many_leaves_there_are_and_sums_what_it_likes() -> None:
    """F69: integers stay integers, and what is not counted is not reported."""
    scores = Scores(num_leaves=0)
    first = LeafResult(4, None, None, 1.0, sums=(("far", 2**60), ("near", 0.25)))
    assert scores.add(5, 0, first, 2) is None
    event = messages.event(1, {**LEAF, "sums": [["far", 1], ["near", 0.5]]})
    assert isinstance(event, events.Evaluation)
    figures = scores.add(event.step, event.leaf, event.result, event.num_leaves)
    expected = {"examples": 7, "loss": 1.5 / 7, "far": (2**60 + 1) / 7, "near": 0.75 / 7}
    assert figures == {**expected, "best_loss": 1.5 / 7}
    assert scores.best == {"loss": 1.5 / 7, "step": 5}
    assert scores.evaluated == 5


def test_the_best_is_that_with_the_most_hits() -> None:
    scores = Scores(num_leaves=0)
    for step, hits in ((1, 2), (2, 3), (3, 1)):
        figures = scores.add(step, 0, LeafResult(4, hits, None, 1.0), 1)
    assert scores.best == {"top1": 0.75, "step": 2}
    assert figures is not None
    assert figures["best_top1"] == 0.75
    assert "top5" not in figures


def test_what_is_no_number_is_never_the_best() -> None:
    scores = Scores(num_leaves=0)
    rows = [scores.add(step, 0, LeafResult(1, None, None, loss), 1) for step, loss in ((1, math.nan), (2, math.inf))]
    assert scores.best is None
    assert not any("best_loss" in (row or {}) for row in rows)
    for step, loss in ((3, 2.0), (4, math.nan)):
        row = scores.add(step, 0, LeafResult(1, None, None, loss), 1)
        assert row is not None
        assert row["best_loss"] == 2.0
    assert scores.best == {"loss": 2.0, "step": 3}


def test_a_leaf_that_is_evaluated_twice_contradicts_itself_only_if_it_differs() -> None:
    """As when a worker dies in the midst of it. A loss that is no number, sent twice, is no contradiction."""
    scores = Scores(num_leaves=2)
    for _ in range(2):
        assert scores.add(1, 0, LeafResult(1, None, None, float("nan"))) is None
    with pytest.raises(Contradiction):
        scores.add(1, 0, LeafResult(1, None, None, 0.5))
