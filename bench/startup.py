"""How long a user waits: from the command to the first step, next to importing torch."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench import contestants
from bench.ratio import MIN_ROUNDS, Target
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved

TARGET_SECONDS = 3.0
IMPORT = "python -c 'import torch'"
WORKERS = (1, 2)


def startup(quick: bool, scratch: Path, say: Say) -> Result:
    import_torch(scratch / "warm-up")  # the first one reads the files from disk
    runs: dict[str, Contestant] = {IMPORT: import_torch}
    computing: dict[str, list[float]] = {_name(workers): [] for workers in WORKERS}
    for workers in WORKERS:
        runs[_name(workers)] = _first_step(workers, computing[_name(workers)])
    samples = interleaved(runs, 1 if quick else MIN_ROUNDS + 1, scratch, say)
    figures = [
        Figure(
            f"{_name(workers)}: first step done, above {IMPORT}",
            "seconds",
            [ours - floor for ours, floor in zip(samples[_name(workers)], samples[IMPORT], strict=True)],
            Target(TARGET_SECONDS, at_least=False),
        )
        for workers in WORKERS
    ]
    measured = [Figure(name, "seconds", values) for name, values in samples.items()]
    measured += [Figure(f"{name}: the first step itself", "seconds", values) for name, values in computing.items()]
    return Result(
        name="startup",
        question="ResNet-20: seconds from the command to the first row of metrics, which is written when the first "
        "step of 128 images is done, so the time includes computing it.",
        figures=figures,
        measured=measured,
    )


def _name(workers: int) -> str:
    return f"lockstep train --workers {workers}"


def import_torch(directory: Path) -> float:
    directory.mkdir(parents=True)
    started = time.time()
    with contestants.started_process([sys.executable, "-c", "import torch"], directory / "log") as process:
        contestants.finish(process, directory / "log", started)
        return time.time() - started


def _first_step(workers: int, computing: list[float]) -> Contestant:
    def run(directory: Path) -> float:
        done = contestants.lockstep(directory, "resnet20", workers=workers, leaves=4, steps=1)
        first = done.train_rows[0]
        computing.append(sum(first["spans"].values()))
        seconds: float = first["time"] - done.started
        return seconds

    return run
