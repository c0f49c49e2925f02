"""What a `kill -9` costs everyone who can go on, in a few minutes; `recovery` has the long version with more kills."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import disturbed, recovery
from bench.disturbed import GLOBAL_BATCH, WORLD, Contestant
from bench.plan import FAILED, OURS, Comparison, Measurement, is_failure
from bench.ratio import Target, paired
from bench.results import Figure, Result
from bench.sidebyside import KILL, RAY_TRAIN, TORCHFT, TORCHRUN

CONTESTANTS: dict[str, tuple[Contestant, str | None, float]] = {
    OURS: (disturbed.lockstep, None, 100.0),
    TORCHFT: (disturbed.torchft, "torchft", 110.0),
    TORCHRUN: (disturbed.torchrun, None, 190.0),
    RAY_TRAIN: (recovery.CONTESTANTS[RAY_TRAIN], "ray.train", 240.0),
}
"""Who, what it needs, and seconds that it takes about."""


def plan(quick: bool) -> list[Measurement]:
    return [
        Measurement(_key(who), who, seconds, partial(_measure, run, *_size(quick)), needs)
        for who, (run, needs, seconds) in CONTESTANTS.items()
    ]


def _size(quick: bool) -> tuple[int, int]:
    """How many kills, and the steps from one to the next."""
    return (2, 12) if quick else (8, 30)


def _key(who: str) -> str:
    return f"recovery, {who}"


def _measure(run: Contestant, kills: int, every: int, directory: Path) -> dict[str, Any]:
    steps, kill_at = every * (kills + 1), [every * (number + 1) for number in range(kills)]
    pair = recovery.Pair(run(directory / "calm", steps, []), run(directory / "killed", steps, kill_at))
    return {
        "median_lost": median(pair.time_lost),
        "time_lost": pair.time_lost,
        "column": recovery.column(pair),
        "digests": sorted({pair.calm.digest, pair.killed.digest} - {""}),
        "crashes": pair.crashes,
    }


def conclude(entries: Mapping[str, Any], quick: bool) -> Result:
    kills, every = _size(quick)
    missing = {FAILED: "the session was interrupted"}
    found = {who: entries.get(_key(who), missing) for who in CONTESTANTS}
    done = {who: entry for who, entry in found.items() if not is_failure(entry)}
    return Result(
        name="peers-recovery",
        question=f"ResNet-20, batch {GLOBAL_BATCH}, {WORLD} workers, {every * (kills + 1)} steps: what a `kill -9` "
        f"costs. {kills} kills, each when the training first reaches a multiple of {every} steps, everyone under the "
        "same kills. DDP is started again from a checkpoint of every 50 steps, by torchrun and by Ray Train.",
        figures=_figures(done),
        table=_table(done),
        measured=[Figure(f"{who}: time lost by a kill", "seconds", entry["time_lost"]) for who, entry in done.items()],
        notes=[recovery.METHOD],
        cells=[(who, KILL, _lost(entry), _why(who, entry)) for who, entry in found.items()],
    )


def _figures(done: Mapping[str, Any]) -> list[Figure]:
    if OURS not in done:
        return []
    ours = done[OURS]
    lost = Figure(f"{OURS}: time lost by a kill", "seconds", ours["time_lost"], recovery.MEDIAN_TARGET)
    digests = Figure(f"{OURS}: digests", "count", [len(ours["digests"])], Target(1.0, at_least=False), exact=True)
    ratios = [
        Figure(
            f"time lost by a kill: {OURS} / {who}",
            "ratio",
            paired(ours["time_lost"], entry["time_lost"]),
            Target.not_above(),
        )
        for who, entry in done.items()
        if who != OURS
    ]
    return [lost, digests, *ratios]


def _table(done: Mapping[str, Any]) -> list[list[str]]:
    """Side by side: a column for each."""
    columns = [entry["column"] for entry in done.values()]
    rows = [[what, *(column[what] for column in columns)] for what in (columns[0] if columns else ())]
    return [["", *done], *rows] if rows else []


def _lost(entry: Any) -> list[float]:
    return [] if is_failure(entry) else [float(value) for value in entry["time_lost"]]


def _why(who: str, entry: Any) -> str:
    return f"{who}: {entry[FAILED]}" if is_failure(entry) else ""


KILLS = Comparison("peers-recovery", plan, conclude)
