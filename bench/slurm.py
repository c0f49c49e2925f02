"""How long a user waits under Slurm: from the command to the first step, next to an empty srun and the local engine.

On a Slurm of virtual nodes on this host, as in the tests: what is seen is what the engine adds, not a network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import contestants
from bench.ratio import MIN_ROUNDS
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from bench.startup import import_torch
from tests.engines.virtual_slurm import Cluster, missing

EMPTY = "srun true"
ENGINES = ("local", "slurm")


def slurm_engine(quick: bool, scratch: Path, say: Say) -> Result:
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    import_torch(scratch / "warm-up")  # the first one reads the files from disk
    with _allocation(scratch / "slurm"):
        runs: dict[str, Contestant] = {EMPTY: _empty, **{_name(engine): _first_step(engine) for engine in ENGINES}}
        samples = interleaved(runs, 1 if quick else MIN_ROUNDS + 1, scratch, say)
    local, slurm = (samples[_name(engine)] for engine in ENGINES)
    pairs = zip(slurm, local, samples[EMPTY], strict=True)
    return Result(
        name="engine-slurm",
        question="ResNet-20, two workers: seconds from the command to the first row of metrics under Slurm, on virtual "
        "nodes of this host.",
        figures=[
            Figure(
                "what Slurm adds to the local engine, above an empty srun", "seconds", [a - b - c for a, b, c in pairs]
            )
        ],
        measured=[Figure(name, "seconds", values) for name, values in samples.items()],
    )


@contextmanager
def _allocation(root: Path) -> Iterator[None]:
    """This process inside a job with two nodes."""
    root.mkdir()
    cluster, before = Cluster(root, num_nodes=2), dict(os.environ)
    try:
        cluster.start()
        os.environ.update(cluster.allocate(2))
        yield
    finally:
        cluster.stop()
        os.environ.clear()
        os.environ.update(before)


def _name(engine: str) -> str:
    return f"lockstep train --workers 2 --engine {engine}"


def _empty(directory: Path) -> float:
    directory.mkdir(parents=True)
    started = time.time()
    command = ["srun", "--nodes=1", "--ntasks=1", "--exact", "--mem=0", "true"]
    with contestants.started_process(command, directory / "log") as process:
        contestants.finish(process, directory / "log", started)
        return time.time() - started


def _first_step(engine: str) -> Contestant:
    def run(directory: Path) -> float:
        options = ["--engine", engine]
        done = contestants.lockstep(directory, "resnet20", workers=2, leaves=4, steps=1, options=options)
        seconds: float = done.train_rows[0]["time"] - done.started
        return seconds

    return run
