"""What kills have cost a training, from the journals of its processes and its final weights. Pure but for reading.

A step counts when it is done for the first time by anyone; so the steps that are done again after going back to a
checkpoint are part of the time that the kill has cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from safetensors.numpy import load_file

from bench.journal import Entry

Journals = Sequence[Sequence[Entry]]

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Of BatchNorm; torchft keeps those of each replica for itself."""


def first_done(journals: Journals) -> dict[int, Entry]:
    """Who was the first to do each step."""
    first: dict[int, Entry] = {}
    for entry in sorted((entry for entries in journals for entry in entries), key=lambda entry: entry.time):
        if entry.samples:
            first.setdefault(entry.step, entry)
    return first


def step_seconds(journals: Journals) -> dict[int, float]:
    """How long each step took, from the end of the one before; not known of the first one."""
    first = first_done(journals)
    return {step: entry.time - first[step - 1].time for step, entry in first.items() if step - 1 in first}


def usual_step(journals: Journals) -> float:
    return median(step_seconds(journals).values())


def time_lost(journals: Journals, kills: Sequence[float]) -> list[float]:
    """By each kill: the duration of the step that it hit less the median step.

    The step under way can still be done if the victim has given its share; then the kill hits the one after it.
    """
    first, seconds, usual = first_done(journals), step_seconds(journals), usual_step(journals)
    lost = []
    for kill in kills:
        done = max(step for step, entry in first.items() if entry.time <= kill)
        lost.append(max(seconds.get(step, 0.0) for step in (done + 1, done + 2)) - usual)
    return lost


def whole_seconds(journals: Journals) -> float:
    """From the first step to the last."""
    return sum(step_seconds(journals).values())


def steps_redone(journals: Journals) -> float:
    """Steps that were computed in vain, or again by the same process, as a share of all processes."""
    redone = 0
    for entries in journals:
        done: set[int] = set()
        for entry in entries:
            redone += not entry.samples or entry.step in done
            done |= {entry.step} if entry.samples else set()
    return redone / len(journals)


def samples_lost(journals: Journals, global_batch: int) -> int:
    """Samples of the steps that went into no weights."""
    return sum(global_batch - entry.samples for entry in first_done(journals).values())


def difference(one: Path, other: Path) -> tuple[float, float]:
    """Of two files of weights: the largest difference of an element, and that of all in relation to their size (L2)."""
    first, second = _flat(one), _flat(other)
    apart = first - second
    return float(np.abs(apart).max()), float(np.linalg.norm(apart) / np.linalg.norm(first))


def _flat(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = sorted(load_file(path).items())
    return np.concatenate([w.ravel().astype(np.float64) for name, w in weights if not name.endswith(STATISTICS)])
