"""Data loading: how fast everyone feeds small images, next to torch's DataLoader, Keras' and Ray's ways."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.contestants import PEER_VARIABLES, TIME_LIMIT_SECONDS, started_process
from bench.plan import FAILED, OURS, Comparison, Measurement, is_failure
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.sidebyside import BARE, KERAS, LOADING, RAY_TRAIN

LOADERS: dict[str, tuple[str, str, str | None, float]] = {
    OURS: ("lockstep", "Lockstep", None, 6.0),
    BARE: ("dataloader", "torch's DataLoader", None, 9.0),
    KERAS: ("keras", "Keras' PyDataset", "keras", 10.0),
    RAY_TRAIN: ("ray", "Ray Data", "ray.data", 20.0),
}
"""By who reads so: its name in `bench.peers.feeder`, what it is, what it needs, and seconds that it takes about."""


def plan(quick: bool) -> list[Measurement]:
    found: list[Measurement] = []
    for number in range(1 if quick else MIN_ROUNDS):
        one_round = [
            Measurement(_key(number, who), who, seconds, partial(_feed, loader, 16 if quick else 160), needs)
            for who, (loader, _, needs, seconds) in LOADERS.items()
        ]
        found += one_round if number % 2 == 0 else reversed(one_round)
    return found


def _key(number: int, who: str) -> str:
    return f"loading, round {number + 1}, {who}"


def _feed(loader: str, batches: int, directory: Path) -> float:
    directory.mkdir(parents=True)
    log = directory / "log"
    command = [sys.executable, "-m", "bench.peers.feeder", loader, str(batches)]
    with started_process(command, log, PEER_VARIABLES) as process:
        try:
            code = process.wait(TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end within {TIME_LIMIT_SECONDS:.0f} s") from None
    lines = log.read_text(errors="replace").splitlines() or [""]
    if code != 0:
        raise RuntimeError(f"exit code {code}: {lines[-1]}")
    return float(lines[-1])


def conclude(entries: Mapping[str, Any], quick: bool) -> Result:
    rounds = range(1 if quick else MIN_ROUNDS)
    missing = {FAILED: "the session was interrupted"}
    found = {who: [entries.get(_key(number, who), missing) for number in rounds] for who in LOADERS}
    figures = []
    for who, (_, words, _, _) in LOADERS.items():
        pairs = zip(found[OURS], found[who], strict=True)
        both = [(ours, theirs) for ours, theirs in pairs if not is_failure(ours) and not is_failure(theirs)]
        if who != OURS and both:
            ratios = paired(*zip(*both, strict=True))
            figures.append(Figure(f"data loading: Lockstep / {words}", "ratio", ratios, Target.not_behind()))
    samples = {who: [float(one) for one in found[who] if not is_failure(one)] for who in LOADERS}
    return Result(
        name="peers-loading",
        question="Images of 32 x 32 in memory, a window at random from a border of 4 pixels, half of them mirrored, "
        "as floats, in batches of 128, without training; everyone with one thread or process beside the one that "
        "takes them. torch's DataLoader transforms every image by itself, as torchvision does it; Lockstep, Keras "
        "and what was written for Ray Data transform whole batches.",
        figures=figures,
        measured=[Figure(LOADERS[who][1], "images/s", values) for who, values in samples.items() if values],
        cells=[
            (who, LOADING, values, "" if values else f"{who}: {found[who][0][FAILED]}")
            for who, values in samples.items()
        ],
    )


LOADS = Comparison("peers-loading", plan, conclude)
