"""How soon CIFAR-10 is learnt: `fast-cifar10`, DDP with the same network, and the ResNet-18 of common tutorials.

And the table of the parameter-server system done right: one recipe with 1, 2 and 4 workers, one digest, one accuracy.
These take hours, need the data (`--data DIR`), and run only when they are named.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import contestants
from bench.contestants import PEER_VARIABLES, RECIPES
from bench.ratio import Target
from bench.results import Figure, Result
from bench.rounds import Say
from lockstep import checkpoint, metrics
from lockstep.rundirectory import RunDirectory

DATA_VARIABLE = "LOCKSTEP_BENCH_DATA"
SEEDS = (0, 1, 2)
CAP_MINUTES = 60.0
TABLE_MINUTES = 10.0
"""For each number of workers in the table."""


@dataclass(frozen=True)
class Trained:
    """A training from the command to its last evaluation."""

    top1: float
    minutes: float
    steps: int
    digest: str = ""
    images_per_second: float = 0.0


def fast_cifar10(quick: bool, scratch: Path, say: Say) -> Result:
    """Ours with three seeds and DDP with the same ones, interleaved; then one worker, and the tutorial's network."""
    short = ("--steps", "4", "--set", "evaluation.max_leaves=4") if quick else ()
    ours, ddp = [], []
    for seed in SEEDS[:1] if quick else SEEDS:
        ours.append(lockstep(scratch / f"ours{seed}", "fast-cifar10", 2, ("--seed", str(seed), *short)))
        say(f"Lockstep, seed {seed}: {ours[-1].top1:.2%} after {ours[-1].minutes:.1f} min")
        ddp.append(plain(scratch / f"ddp{seed}", "fast-cifar10", seed, steps=4 if quick else None))
        say(f"DDP, seed {seed}: {ddp[-1].top1:.2%} after {ddp[-1].minutes:.1f} min")
    alone = lockstep(scratch / "alone", "fast-cifar10", 1, ("--seed", str(SEEDS[0]), *short))
    say(f"one worker: {alone.top1:.2%} after {alone.minutes:.1f} min")
    minutes = [run.minutes for run in ours]
    return Result(
        name="fast-cifar10",
        question="`fast-cifar10` on two workers with one thread each, three seeds, from the command to the evaluation "
        "of the whole test set, next to DDP with the same network, optimizer and schedule. The data is a JPEG copy of "
        "CIFAR-10, slightly lossy: accuracies are one or two points below those on the original.",
        figures=[
            Figure("Lockstep: top1, the worst seed", "share", [min(run.top1 for run in ours)], Target(0.9, True), True),
            Figure("Lockstep: minutes, the slowest seed", "minutes", [max(minutes)], Target(15.0, False), True),
            Figure("digests that one and two workers give", "count", [len({ours[0].digest, alone.digest})], ONE, True),
        ],
        table=_table({"Lockstep": ours, "DDP": ddp, "Lockstep, one worker": [alone]}),
    )


ONE = Target(1.0, at_least=False)


def tutorial_resnet18(quick: bool, scratch: Path, say: Say) -> Result:
    """What the usual tutorial's network has reached after an hour."""
    found = plain(scratch / "resnet18", f"{RECIPES}:tutorial_resnet18", 0, minutes=0.1 if quick else CAP_MINUTES)
    say(f"ResNet-18: {found.top1:.2%} after {found.minutes:.1f} min")
    return Result(
        name="tutorial-resnet18",
        question="The ResNet-18 of common tutorials (11 million weights, batch 128, SGD 0.1, cosine over 200 epochs) "
        f"under DDP on two processes with one thread each: accuracy after {CAP_MINUTES:.0f} minutes, on the JPEG copy "
        "of CIFAR-10.",
        figures=[Figure("top1 after the time", "share", [found.top1], None, True)],
        table=_table({"ResNet-18": [found]}),
    )


def resnet50_6n2(quick: bool, scratch: Path, say: Say) -> Result:
    """As many steps as one worker does in the time, then the same steps with two and four."""
    steps = 2 if quick else measure_steps(scratch, say)
    runs = {}
    for workers in (1, 2, 4):
        options = ("--stop-at", str(steps), *(("--set", "evaluation.max_leaves=2") if quick else ()))
        runs[workers] = lockstep(scratch / f"workers{workers}", "resnet50-6n2-cifar10", workers, options)
        say(f"{workers} workers: {runs[workers].top1:.2%}, {steps / runs[workers].minutes / 60:.2f} steps/s")
    digests, accuracies = {run.digest for run in runs.values()}, {run.top1 for run in runs.values()}
    return Result(
        name="resnet50-6n2",
        question=f"`resnet50-6n2-cifar10`, batch 128, the first {steps} steps with 1, 2 and 4 workers on two cores. "
        "The system that published this table got 93.6 % from one process and 85.2 to 87.3 % from several.",
        figures=[
            Figure("digests", "count", [len(digests)], ONE, True),
            Figure("accuracies", "count", [len(accuracies)], ONE, True),
        ],
        table=[
            ["workers", "steps/s", "images/s", "top1", "digest"],
            *([str(workers), *_speed(run), f"{run.top1:.2%}", run.digest[:12]] for workers, run in runs.items()),
        ],
    )


STRATEGIES = {
    "allreduce": ("--strategy", "allreduce"),
    "server": ("--strategy", "server", "--servers", "2"),
    "driver": ("--strategy", "driver"),
    "averaging, k = 10": ("--strategy", "averaging"),
    "averaging, k = 10, Nesterov": ("--strategy", "averaging", "--outer", "nesterov"),
    "async": ("--strategy", "async", "--servers", "1"),
}
STRATEGY_EPOCHS = 3.0


def strategies(quick: bool, scratch: Path, say: Say) -> Result:
    """ResNet-20 with every strategy, for as many epochs each: the synchronous ones are one result."""
    length = ("--steps", "20") if quick else ("--epochs", str(STRATEGY_EPOCHS))
    runs = {}
    for number, (name, options) in enumerate(STRATEGIES.items()):
        runs[name] = lockstep(scratch / str(number), "resnet20-cifar10", 2, (*options, *length))
        say(f"{name}: {runs[name].top1:.2%} after {runs[name].minutes:.1f} min")
    base = runs["allreduce"]
    synchronous = {runs[name].digest for name in ("allreduce", "server", "driver")}
    return Result(
        name="strategies-accuracy",
        question=f"`resnet20-cifar10` for {STRATEGY_EPOCHS:g} epochs on two workers with every strategy: top1 on the "
        "test set of the JPEG copy of CIFAR-10, one seed.",
        figures=[Figure("digests of allreduce, server and driver", "count", [len(synchronous)], ONE, True)],
        table=[
            ["strategy", "top1", "difference", "digest"],
            *([name, f"{r.top1:.2%}", f"{100 * (r.top1 - base.top1):+.2f}", r.digest[:12]] for name, r in runs.items()),
        ],
        notes=["Accuracies do not depend on how busy the machine is; speeds are in the other tables."],
    )


def _speed(run: Trained) -> tuple[str, str]:
    return f"{run.images_per_second / 128:.2f}", f"{run.images_per_second:.0f}"


def measure_steps(scratch: Path, say: Say) -> int:
    """How many steps fit the time with one worker, from a short run."""
    options = ("--stop-at", "20", "--set", "evaluation.max_leaves=1")
    speed = lockstep(scratch / "speed", "resnet50-6n2-cifar10", 1, options).images_per_second / 128
    steps = int(TABLE_MINUTES * 60 * speed)
    say(f"{speed:.2f} steps/s with one worker: {steps} steps")
    return steps


def lockstep(directory: Path, recipe: str, workers: int, options: tuple[str, ...]) -> Trained:
    """Train by the command that a user would type."""
    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "lockstep", "train", recipe, "--data", data(), "--workers", str(workers)]
    command += [*options, "--run", str(directory / "run")]
    started = time.time()
    with contestants.started_process(command, directory / "log") as process:
        contestants.finish(process, directory / "log", started, limit_seconds=4 * 3600)
    run = RunDirectory(directory / "run")
    rows = metrics.read(run.path / "metrics.jsonl")
    last = [row for row in rows if row["kind"] == "eval"][-1]
    speeds = sorted(float(row["images_per_second"]) for row in rows if row["kind"] == "train")
    newest, _ = checkpoint.newest_good(run.checkpoints)
    assert newest is not None
    return Trained(last["top1"], (last["time"] - started) / 60, last["step"], newest.digest, speeds[len(speeds) // 2])


def plain(directory: Path, recipe: str, seed: int, steps: int | None = None, minutes: float | None = None) -> Trained:
    """Train with DDP, two processes of one thread each."""
    directory.mkdir(parents=True)
    started, out = time.time(), directory / "found.json"
    with ExitStack() as stack:
        processes = []
        for rank in range(2):
            command = [sys.executable, "-m", "bench.peers.accurate", recipe, "--data", data(), "--seed", str(seed)]
            command += ["--rank", str(rank), "--world", "2", "--out", str(out), "--started", str(started)]
            command += [] if steps is None else ["--steps", str(steps)]
            command += [] if minutes is None else ["--minutes", str(minutes)]
            log = directory / f"rank{rank}.log"
            processes.append((stack.enter_context(contestants.started_process(command, log, PEER_VARIABLES)), log))
        for process, log in processes:
            contestants.finish(process, log, started, limit_seconds=4 * 3600)
    last = contestants.read_json(out)[-1]
    return Trained(last["top1"], last["seconds"] / 60, int(last["step"]))


def data() -> str:
    if DATA_VARIABLE not in os.environ:
        raise SystemExit("this benchmark needs CIFAR-10: give its directory with --data")
    return os.environ[DATA_VARIABLE]


def _table(contestants: dict[str, list[Trained]]) -> list[list[str]]:
    rows = [
        [name, str(number), f"{run.top1:.2%}", f"{run.minutes:.1f}", str(run.steps), run.digest[:12]]
        for name, runs in contestants.items()
        for number, run in enumerate(runs)
    ]
    return [["", "seed", "top1", "minutes", "steps", "digest"], *rows]
