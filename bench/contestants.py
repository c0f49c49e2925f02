"""Runs whoever is measured, each by the command that a user would type, and reads what it measured of itself.

Every process dies with the benchmark, however that ends, and is killed when it takes too long.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.procfs import Watch
from bench.results import ROOT
from lockstep import metrics

GLOBAL_BATCH = 128
RECIPES = ROOT / "bench" / "recipes.py"
LOCKSTEP = (sys.executable, "-m", "lockstep")
TIME_LIMIT_SECONDS = 300.0
SAMPLE_SECONDS = 0.1
PEER_VARIABLES = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""What the local engine sets for a worker; for Lockstep itself it is none of our business."""

Started = AbstractContextManager[subprocess.Popen[bytes]]
"""A process that is gone at the end of the block."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class LockstepRun:
    """What a finished `lockstep train` left behind."""

    started: float
    """When the command was started, in seconds since 1970."""
    rows: list[metrics.Row]
    watch: Watch
    directory: Path

    @property
    def train_rows(self) -> list[metrics.Row]:
        return [row for row in self.rows if row["kind"] == "train"]

    def images_per_second(self, warmup: int) -> float:
        """From the median step: one hiccup of the machine does not decide. Needs a row for every step."""
        return median(float(row["images_per_second"]) for row in self.train_rows[warmup:])


@dataclass(frozen=True)
class PeerRun:
    """What one process of a peer measured."""

    step_seconds: list[float]
    peak_mib: float
    first_step_at: float
    """In seconds since 1970."""

    def step(self, warmup: int) -> float:
        """Seconds of the median step."""
        return median(self.step_seconds[warmup:])


def lockstep(
    directory: Path,
    recipe: str,
    *,
    workers: int,
    leaves: int,
    steps: int,
    log_every: int = 1,
    module: Sequence[str] = ("lockstep", "train"),
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    watched: bool = False,
) -> LockstepRun:
    """Train by the real command in a new run directory."""
    sizes = {"workers": workers, "leaves": leaves, "steps": steps, "log_every": log_every}
    command = [*lockstep_command(directory, recipe, **sizes, module=module), *options]
    directory.mkdir(parents=True)
    watch, started = Watch(), time.time()
    with started_process(command, directory / "log", variables) as process:
        while watched and process.poll() is None and time.time() - started < TIME_LIMIT_SECONDS:
            watch.sample(process.pid)
            time.sleep(SAMPLE_SECONDS)
        finish(process, directory / "log", started)
    return LockstepRun(started, metrics.read(directory / "run" / "metrics.jsonl"), watch, directory / "run")


def lockstep_command(
    directory: Path,
    recipe: str,
    *,
    workers: int,
    leaves: int,
    steps: int,
    log_every: int = 1,
    module: Sequence[str] = ("lockstep", "train"),
) -> list[str]:
    command = [sys.executable, "-m", *module, f"{RECIPES}:{recipe}", "--data", "synthetic"]
    command += ["--workers", str(workers), "--leaves", str(leaves), "--steps", str(steps)]
    return [*command, "--set", f"log_every={log_every}", "--run", str(directory / "run")]


def bare(directory: Path, recipe: str, *, world: int, leaves: int, steps: int) -> list[PeerRun]:
    """So many bare loops at the same time, each with its share of the leaves."""
    return _peers("bench.peers.bare", directory, recipe, world, leaves, steps)


def ddp(
    directory: Path,
    recipe: str,
    *,
    world: int,
    leaves: int,
    steps: int,
    places: Sequence[Sequence[str]] = (),
    interface: str = "lo",
) -> list[PeerRun]:
    """`places` are commands that lead to another host each, one for every rank; `interface` is how they meet."""
    return _peers("bench.peers.ddp", directory, recipe, world, leaves, steps, places, interface)


def objects(directory: Path, recipe: str, *, world: int, leaves: int, steps: int, local_steps: int) -> PeerRun:
    """The classic way on Ray: weights through the object store, averaged by the driver."""
    directory.mkdir(parents=True)
    out, log, started = directory / "driver.json", directory / "driver.log", time.time()
    command = [sys.executable, "-m", "bench.peers.objects", f"{RECIPES}:{recipe}", "--leaves", str(leaves)]
    command += ["--steps", str(steps), "--world", str(world), "--local-steps", str(local_steps), "--out", str(out)]
    with started_process(command, log, PEER_VARIABLES) as process:
        finish(process, log, started)
    return PeerRun(**read_json(out))


def _peers(
    module: str,
    directory: Path,
    recipe: str,
    world: int,
    leaves: int,
    steps: int,
    places: Sequence[Sequence[str]] = (),
    interface: str = "lo",
) -> list[PeerRun]:
    directory.mkdir(parents=True)
    outs = [directory / f"rank{rank}.json" for rank in range(world)]
    logs = [directory / f"rank{rank}.log" for rank in range(world)]
    with ExitStack() as stack:
        processes, started = [], time.time()
        for rank in range(world):
            command = [*(places[rank] if places else ()), sys.executable, "-m", module, f"{RECIPES}:{recipe}"]
            command += [
                "--leaves",
                str(leaves),
                "--steps",
                str(steps),
                "--rank",
                str(rank),
                "--world",
                str(world),
                "--out",
                str(outs[rank]),
            ]
            variables = {**PEER_VARIABLES, "GLOO_SOCKET_IFNAME": interface}
            processes.append(stack.enter_context(started_process(command, logs[rank], variables)))
        for process, log in zip(processes, logs, strict=True):
            finish(process, log, started)
    return [PeerRun(**read_json(out)) for out in outs]


@contextmanager
def started_process(
    command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone at the end of the block."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHONPATH": path, **(variables or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()  # the workers of Lockstep follow their supervisor
            process.wait()


def finish(
    process: subprocess.Popen[bytes], log: Path, started: float, limit_seconds: float = TIME_LIMIT_SECONDS
) -> None:
    """Wait for the end; what went wrong is in the log, so show its end."""
    try:
        code = process.wait(max(1.0, started + limit_seconds - time.time()))
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        how = f"exit code {code}" if code is not None else f"no end within {limit_seconds:.0f} s"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RuntimeError(f"{how}: {subprocess.list2cmdline(map(str, _arguments(process)))}\n{tail}")


def _arguments(process: subprocess.Popen[bytes]) -> list[str]:
    return list(process.args) if isinstance(process.args, list) else [str(process.args)]


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
