"""Prefetching follows the plan, and survives a change of plan."""

from __future__ import annotations

import threading

import numpy as np

from lockstep.data.prefetch import Prefetcher
from lockstep.data.source import Batch


class Recorder:
    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def __call__(self, step: int, leaf: int) -> Batch:
        self.read.append((step, leaf))
        self.threads.add(threading.current_thread().name)
        return Batch(images=np.full((1, 1, 1, 1), leaf, dtype=np.uint8), labels=np.array([step]))


def test_the_next_leaves_are_read_ahead_and_only_once() -> None:
    recorder = Recorder()
    prefetcher = Prefetcher(recorder, depth=2)
    plan = [(0, 0), (0, 1), (1, 0), (1, 1)]
    for at, (step, leaf) in enumerate(plan):
        batch = prefetcher.take(step, leaf, plan[at + 1 :])
        assert (int(batch.labels[0]), int(batch.images[0, 0, 0, 0])) == (step, leaf)
    prefetcher.close()
    assert sorted(recorder.read) == plan
    assert len(recorder.threads) == 2  # the first one was read by the caller, the others ahead of it


def test_another_plan_is_followed_from_the_next_leaf_on() -> None:
    recorder = Recorder()
    prefetcher = Prefetcher(recorder, depth=2)
    prefetcher.take(0, 0, [(0, 1), (0, 2)])
    batch = prefetcher.take(0, 5, [(0, 6)])  # a new generation: the old plan is void
    assert batch.images[0, 0, 0, 0] == 5
    assert prefetcher.take(0, 6, []).images[0, 0, 0, 0] == 6
    prefetcher.close()
