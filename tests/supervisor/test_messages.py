"""What the network sends is input: any message is an event, or is refused, and never anything else."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events as e
from lockstep.supervisor import messages
from lockstep.supervisor.verification import Replay, Report

GOOD: list[dict[str, Any]] = [
    {"type": "promised", "number": 2, "step": 5, "held": [1, 2]},
    {"type": "heartbeat", "step": 1, "leaf": None, "phase": "forward", "leaf_seconds": None},
    {"type": "lost", "number": 1, "peer": 3, "error": "x"},
    {"type": "outrun", "number": 1},
    {"type": "evaluation", "step": 1, "leaf": 0, "count": 10, "top1": 3, "top5": 5, "loss": 0.5},
    {"type": "verify", "number": 1, "step": 5, "state": "s", "leaves": {"3": "a"}},
    {"type": "answer", "number": 1, "step": 5, "state": "s", "diverged": None},
    {"type": "answer", "number": 1, "step": 5, "state": "s", "leaves": {"3": "a"}},
    {"type": "delay", "number": 1, "step": 5, "seconds": 0.5},
    {"type": "checkpointed", "step": 5, "name": "step-5", "digest": "d", "reason": None, "number": 3},
    {"type": "checkpoint_failed", "step": 5, "error": "full", "reason": "stop"},
    {"type": "error", "message": "m", "where": "step 3", "user": False},
    {
        "type": "evaluation",
        "step": 1,
        "leaf": 0,
        "count": 2,
        "top1": 1,
        "top5": 2,
        "loss": 0.5,
        "confusion": [[3, 4, 2]],
    },
]


def test_messages_are_read() -> None:
    assert messages.event(7, GOOD[0]) == e.Promised(7, 2, 5, (1, 2))
    assert messages.event(7, GOOD[5]) == e.Verify(7, 1, 5, Report("s", {3: "a"}))
    assert messages.event(7, GOOD[6]) == e.Answer(7, 1, 5, Replay("s", None))
    assert messages.event(7, GOOD[7]) == e.Answer(7, 1, 5, Report("s", {3: "a"}))
    assert messages.event(7, GOOD[-1]) == e.Evaluation(7, 1, 0, LeafResult(2, 1, 2, 0.5, ((3, 4, 2),)))
    assert messages.event(7, {"type": "something else"}) is None
    assert {message["type"] for message in GOOD} == set(messages.READERS)


@pytest.mark.parametrize("counts", [[[3, 4, 1]], [[3, 4, 1], [3, 5, 2]], [[-1, 4, 2]], [[3, 4]], [3], [[3, 4, -2]]])
def test_a_confusion_table_that_does_not_count_every_example_once_is_refused(counts: Any) -> None:
    with pytest.raises(messages.MALFORMED):
        messages.event(7, {**GOOD[-1], "confusion": counts})


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message["type"])
def test_a_damaged_message_is_an_event_or_is_refused(message: dict[str, Any]) -> None:
    """Keys vanish, values become something else."""
    numbers = random.Random(str(message))
    junk: list[Any] = [None, True, -1, 10**30, 1.5, float("nan"), float("inf"), "", "x", [], [[]], {}, {"a": {}}]
    for _ in range(300):
        damaged = json.loads(json.dumps(message))
        key = numbers.choice([key for key in damaged if key != "type"])
        if numbers.random() < 0.3:
            del damaged[key]
        else:
            damaged[key] = numbers.choice(junk)
        try:
            messages.event(0, damaged)
        except messages.MALFORMED:
            continue
