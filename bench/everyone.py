"""Everyone who is compared, by the command that their users type: with one process or two, undisturbed.

One run gives the speed of its median step, the time from the command to the end of the first step, and the most memory
that a process had.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import contestants, onray
from bench.contestants import GLOBAL_BATCH, PEER_VARIABLES, RECIPES, PeerRun, finish, read_json, started_process

RECIPE = "resnet20"
LEAVES = 4
LOCAL_STEPS = 10
"""Of the averaging through an object store."""
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Size:
    """How long a run is."""

    warmup: int
    steps: int
    """Including the warm-up."""


@dataclass(frozen=True)
class Measured:
    """One run of somebody."""

    images_per_second: float
    first_step_seconds: float
    """From the command to the end of the first step."""
    peak_mib: float
    """Of the process that had most."""


Contestant = Callable[[Path, int, Size], Measured]
"""Trains in a directory that does not exist yet, with so many processes."""


def lockstep(directory: Path, world: int, size: Size) -> Measured:
    done = contestants.lockstep(directory, RECIPE, workers=world, leaves=LEAVES, steps=size.steps, watched=True)
    return Measured(
        done.images_per_second(size.warmup),
        float(done.train_rows[0]["time"]) - done.started,
        done.watch.peak,
    )


def bare(directory: Path, world: int, size: Size) -> Measured:
    started = time.time()
    found = contestants.bare(directory, RECIPE, world=world, leaves=LEAVES, steps=size.steps)
    speed = sum(GLOBAL_BATCH / world / one.step(size.warmup) for one in found)
    return _of_peers(found, started, size, speed)


def ddp(directory: Path, world: int, size: Size) -> Measured:
    started = time.time()
    found = contestants.ddp(directory, RECIPE, world=world, leaves=LEAVES, steps=size.steps)
    return _of_peers(found, started, size)


def torchrun(directory: Path, world: int, size: Size) -> Measured:
    directory.mkdir(parents=True)
    # torchrun that is killed would leave its workers behind; the shell tells them its number, for `parent.follow`.
    command = ["sh", "-c", 'LOCKSTEP_PARENT=$$ exec "$@"', "sh"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += ["--max-restarts=100", "-m", "bench.peers.ddp", *_arguments(directory, size)]
    started, log = time.time(), directory / "log"
    with started_process(command, log, PEER_VARIABLES) as process:
        finish(process, log, started)
    return _of_peers(_read(directory, world), started, size)


def torchft(directory: Path, world: int, size: Size) -> Measured:
    directory.mkdir(parents=True)
    started = time.time()
    with ExitStack() as stack:
        light = stack.enter_context(_lighthouse(directory))
        while not (directory / "lighthouse").exists() and light.poll() is None:
            time.sleep(POLL_SECONDS)
        if not (directory / "lighthouse").exists():
            raise RuntimeError("no lighthouse could be started")
        variables = PEER_VARIABLES | {"TORCHFT_LIGHTHOUSE": (directory / "lighthouse").read_text()}
        processes = []
        for rank in range(world):
            command = [sys.executable, "-m", "bench.peers.ft", *_arguments(directory, size)]
            command += ["--rank", str(rank), "--world", str(world)]
            log = directory / f"rank{rank}.log"
            processes.append((stack.enter_context(started_process(command, log, variables)), log))
        for process, log in processes:
            finish(process, log, started)
    return _of_peers(_read(directory, world), started, size)


def _lighthouse(directory: Path) -> contestants.Started:
    command = [sys.executable, "-m", "bench.peers.ft", "lighthouse", str(directory / "lighthouse")]
    return started_process(command, directory / "lighthouse.log")


def ray_train(directory: Path, world: int, size: Size) -> Measured:
    """On a cluster that is there already: its start does not count."""
    with onray.cluster(world + 1) as address:  # Ray Train may want a core for itself
        started = time.time()
        found = onray.train(directory, address, RECIPE, world=world, leaves=LEAVES, steps=size.steps)
    return _of_peers([found], started, size)


def objects(directory: Path, world: int, size: Size) -> Measured:
    """Some steps alone, then an average: whole rounds of them, and the first is the warm-up."""
    started = time.time()
    rounds = max(2, round(size.steps / LOCAL_STEPS))
    found = contestants.objects(
        directory, RECIPE, world=world, leaves=LEAVES, steps=rounds * LOCAL_STEPS, local_steps=LOCAL_STEPS
    )
    return _of_peers([found], started, Size(LOCAL_STEPS, rounds * LOCAL_STEPS))


def keras_fit(directory: Path, world: int, size: Size) -> Measured:
    assert world == 1
    directory.mkdir(parents=True)
    started, log, out = time.time(), directory / "log", directory / "rank0.json"
    command = [sys.executable, "-m", "bench.peers.kerasfit", *_arguments(out, size), "--rank", "0", "--world", "1"]
    with started_process(command, log, PEER_VARIABLES) as process:
        finish(process, log, started)
    return _of_peers([PeerRun(**read_json(out))], started, size)


def _arguments(out: Path, size: Size) -> list[str]:
    return [f"{RECIPES}:{RECIPE}", "--leaves", str(LEAVES), "--steps", str(size.steps), "--out", str(out)]


def _read(directory: Path, world: int) -> list[PeerRun]:
    return [PeerRun(**read_json(directory / f"rank{rank}.json")) for rank in range(world)]


def _of_peers(found: Sequence[PeerRun], started: float, size: Size, speed: float | None = None) -> Measured:
    """All have the same steps, unless they never meet."""
    return Measured(
        GLOBAL_BATCH / found[0].step(size.warmup) if speed is None else speed,
        max(one.first_step_at for one in found) - started,
        max(one.peak_mib for one in found),
    )
