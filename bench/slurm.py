"""What Slurm costs: seconds until the first step, next to an empty srun. The cluster is the one of the tests: real
daemons with virtual nodes on this host, which needs root and Debian's packages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import contestants
from bench.ratio import MIN_ROUNDS
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from lockstep import metrics
from tests.engines.virtual_slurm import Cluster, missing

WORKERS = 2
LOCAL, SLURM, SRUN = "Lockstep, local", "Lockstep under Slurm", "an empty srun"


def slurm_engine(quick: bool, scratch: Path, say: Say) -> Result:
    if (reason := missing()) is not None:
        raise SystemExit(f"this benchmark {reason}")
    with _cluster(scratch / "slurm") as cluster:
        runs: dict[str, Contestant] = {
            SRUN: partial(_srun, cluster),
            LOCAL: partial(_first_step, cluster, (), ()),
            SLURM: partial(_first_step, cluster, _allocation(WORKERS), ("--engine", "slurm")),
        }
        seconds = interleaved(runs, 1 if quick else MIN_ROUNDS, scratch, say)
    above = [ours - least for ours, least in zip(seconds[SLURM], seconds[SRUN], strict=True)]
    return Result(
        name="engine-slurm",
        question="ResNet-20, batch 128 in 4 leaves, two workers on two virtual nodes of a Slurm that has nothing else "
        "to do: seconds from salloc to the first row of metrics, next to an srun that runs nothing.",
        figures=[Figure(f"first step under Slurm, above {SRUN}", "seconds", above)],
        measured=[Figure(name, "seconds", values) for name, values in seconds.items()],
    )


@contextmanager
def _cluster(root: Path) -> Iterator[Cluster]:
    root.mkdir(parents=True)
    cluster = Cluster(root, num_nodes=WORKERS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _allocation(nodes: int) -> tuple[str, ...]:
    return ("salloc", "--quiet", f"--nodes={nodes}", "--ntasks-per-node=1")


def _srun(cluster: Cluster, directory: Path) -> float:
    return _seconds(cluster, [*_allocation(1), "srun", "true"], directory)


def _first_step(cluster: Cluster, prefix: Sequence[str], options: Sequence[str], directory: Path) -> float:
    train = contestants.lockstep_command(directory, "resnet20", workers=WORKERS, leaves=4, steps=1)
    command = [*prefix, *train, *options, "--no-tensorboard"]
    started = time.time()
    _seconds(cluster, command, directory)
    rows = metrics.read(directory / "run" / "metrics.jsonl")
    return next(float(row["time"]) for row in rows if row["kind"] == "train") - started


def _seconds(cluster: Cluster, command: Sequence[str], directory: Path) -> float:
    directory.mkdir(parents=True)
    started, log = time.time(), directory / "log"
    with contestants.started_process(command, log, {"SLURM_CONF": str(cluster.conf)}) as process:
        contestants.finish(process, log, started)
    return time.time() - started
