"""How long a user waits under torchrun and mpirun: from the command to the first step, next to the same launcher with
nothing to do, and to the local engine."""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial
from pathlib import Path

from bench import contestants
from bench.contestants import LOCKSTEP
from bench.ratio import MIN_ROUNDS
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from bench.startup import import_torch
from lockstep import metrics
from tests.engines.virtual_slurm import free_ports

LAUNCHERS = ("torchrun", "mpirun")
EMPTY = {"torchrun": ("-m", "--", "this"), "mpirun": (sys.executable, "-m", "this")}
"""A module that prints and ends."""
OURS = {"torchrun": ("-m", "--", *LOCKSTEP[2:]), "mpirun": tuple(LOCKSTEP)}
LOCAL = "lockstep train --workers 2"


def launchers(quick: bool, scratch: Path, say: Say) -> Result:
    if shutil.which("mpirun") is None:
        raise SystemExit("this benchmark needs Open MPI: apt-get install openmpi-bin")
    import_torch(scratch / "warm-up")  # the first one reads the files from disk
    runs: dict[str, Contestant] = {LOCAL: _first_step}
    for name in LAUNCHERS:
        runs[f"an empty {name}"] = partial(_empty, name)
        runs[f"{name} lockstep train"] = partial(_launched, name)
    samples = interleaved(runs, 1 if quick else MIN_ROUNDS + 1, scratch, say)
    figures = []
    for name in LAUNCHERS:
        trios = zip(samples[f"{name} lockstep train"], samples[LOCAL], samples[f"an empty {name}"], strict=True)
        adds = [ours - local - empty for ours, local, empty in trios]
        figures.append(Figure(f"what {name} adds to the local engine, above an empty one", "seconds", adds))
    return Result(
        name="engine-env",
        question="ResNet-20, two workers that torchrun or Open MPI's mpirun has started: seconds from the command to "
        "the first row of metrics.",
        figures=figures,
        measured=[Figure(name, "seconds", values) for name, values in samples.items()],
    )


def _launcher(name: str) -> list[str]:
    if name == "mpirun":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    (port,) = free_ports(1)
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]


def _empty(name: str, directory: Path) -> float:
    directory.mkdir(parents=True)
    started = time.time()
    with contestants.started_process([*_launcher(name), *EMPTY[name]], directory / "log") as process:
        contestants.finish(process, directory / "log", started)
        return time.time() - started


def _first_step(directory: Path) -> float:
    done = contestants.lockstep(directory, "resnet20", workers=2, leaves=4, steps=1)
    return _first_row(done.directory) - done.started


def _launched(name: str, directory: Path) -> float:
    directory.mkdir(parents=True)
    command = contestants.lockstep_command(directory, "resnet20", workers=2, leaves=4, steps=1)[len(LOCKSTEP) :]
    started, log = time.time(), directory / "log"
    launched = [*_launcher(name), *OURS[name], *command, "--engine", "env"]
    with contestants.started_process(launched, log) as process:
        contestants.finish(process, log, started)
    return _first_row(directory / "run") - started


def _first_row(run: Path) -> float:
    return next(float(row["time"]) for row in metrics.read(run / "metrics.jsonl") if row["kind"] == "train")
