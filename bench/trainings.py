"""Trainings to an accuracy, by Lockstep, by DDP and by a bare loop. They take long: what is finished is remembered, and
an interrupted session goes on with the next one (`session.py`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import contestants
from bench.contestants import PEER_VARIABLES
from bench.ledger import Ledger
from lockstep import checkpoint, metrics
from lockstep.rundirectory import RunDirectory

DATA_VARIABLE = "LOCKSTEP_BENCH_DATA"
LIMIT_SECONDS = 4 * 3600.0
NATIVE_BF16 = {"avx512_bf16", "amx_bf16"}
"""What /proc/cpuinfo says of a processor that multiplies in bf16 itself; elsewhere it is slower than fp32."""


@dataclass(frozen=True)
class Trained:
    """A training from the command to its last evaluation."""

    top1: float
    minutes: float
    steps: int
    digest: str = ""
    images_per_second: float = 0.0
    course: tuple[tuple[float, float], ...] = ()
    """Minutes and top1 of every evaluation."""

    def minutes_to(self, top1: float) -> float | None:
        """When an evaluation first showed as much."""
        return next((minutes for minutes, reached in self.course if reached >= top1), None)


class Memory:
    """The trainings of one benchmark that are finished, as long as the session is not over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.seconds_before = sum(ledger.seconds.values())
        """What was spent on them before the session was interrupted."""

    def recall(self, key: str, train: Callable[[], Trained]) -> Trained:
        """From the file, or by training now."""
        if key not in self._ledger:
            started = time.monotonic()
            self._ledger.add(key, asdict(train()), time.monotonic() - started)
        plain = dict(self._ledger.entries[key])
        return Trained(**plain | {"course": tuple(tuple(one) for one in plain["course"])})


def fastest_precision(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What everyone trains in where time is compared: a choice of the machine, not of a contestant."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return "bf16" if NATIVE_BF16.intersection(flags) else "fp32"


def lockstep(directory: Path, recipe: str, workers: int, options: tuple[str, ...]) -> Trained:
    """Train by the command that a user would type."""
    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "lockstep", "train", recipe, "--data", data(), "--workers", str(workers)]
    command += [*options, "--run", str(directory / "run")]
    started = time.time()
    with contestants.started_process(command, directory / "log") as process:
        contestants.finish(process, directory / "log", started, limit_seconds=LIMIT_SECONDS)
    run = RunDirectory(directory / "run")
    rows = metrics.read(run.path / "metrics.jsonl")
    course = tuple(((row["time"] - started) / 60, float(row["top1"])) for row in rows if row["kind"] == "eval")
    speeds = sorted(float(row["images_per_second"]) for row in rows if row["kind"] == "train")
    newest, _ = checkpoint.newest_good(run.checkpoints)
    assert newest is not None
    minutes, top1 = course[-1]
    return Trained(top1, minutes, newest.step, newest.digest, speeds[len(speeds) // 2], course)


def plain(
    directory: Path,
    recipe: str,
    seed: int,
    *,
    world: int = 2,
    steps: int | None = None,
    minutes: float | None = None,
    options: tuple[str, ...] = (),
) -> Trained:
    """Train with DDP, a thread for each process; with one process by a bare loop, with all cores."""
    directory.mkdir(parents=True)
    started, out = time.time(), directory / "found.json"
    with ExitStack() as stack:
        processes = []
        for rank in range(world):
            command = [sys.executable, "-m", "bench.peers.accurate", recipe, "--data", data(), "--seed", str(seed)]
            command += ["--rank", str(rank), "--world", str(world), "--out", str(out), "--started", str(started)]
            command += [] if steps is None else ["--steps", str(steps)]
            command += [] if minutes is None else ["--minutes", str(minutes)]
            command += ["--threads", str(os.cpu_count())] if world == 1 else []
            variables = {} if world == 1 else PEER_VARIABLES
            log = directory / f"rank{rank}.log"
            started_process = contestants.started_process([*command, *options], log, variables)
            processes.append((stack.enter_context(started_process), log))
        for process, log in processes:
            contestants.finish(process, log, started, limit_seconds=LIMIT_SECONDS)
    found = contestants.read_json(out)
    course = tuple((one["seconds"] / 60, one["top1"]) for one in found)
    return Trained(found[-1]["top1"], course[-1][0], int(found[-1]["step"]), course=course)


def data() -> str:
    if DATA_VARIABLE not in os.environ:
        raise SystemExit("this benchmark needs CIFAR-10: give its directory with --data")
    return os.environ[DATA_VARIABLE]
