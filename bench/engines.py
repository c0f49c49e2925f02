"""What an engine costs. On Ray: how long until the first step, and how many images per second, next to an empty actor,
to the local engine and to Ray Train."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from bench import contestants, onray
from bench.contestants import GLOBAL_BATCH
from bench.peers.objects import QUIET
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved

LEAVES = 4
WORKERS = 2
RECIPE = "resnet20"
ACTOR = "an empty actor"
LOCAL, RAY, TRAINER = "Lockstep, local", "Lockstep on Ray", "Ray Train's TorchTrainer"


def ray_engine(quick: bool, scratch: Path, say: Say) -> Result:
    rounds, warmup, steps = (1, 1, 4) if quick else (MIN_ROUNDS, 3, 18)
    with onray.cluster(WORKERS + 1) as address:  # Ray Train may want a core for itself
        options = ("--engine", "ray", "--address", address, "--no-tensorboard")
        starts: dict[str, Contestant] = {
            ACTOR: partial(_actor, address),
            LOCAL: partial(_first_step, ("--no-tensorboard",)),
            RAY: partial(_first_step, options),
        }
        seconds = interleaved(starts, rounds, scratch / "start", say)
        speeds: dict[str, Contestant] = {
            LOCAL: partial(_images, ("--no-tensorboard",), steps, warmup),
            RAY: partial(_images, options, steps, warmup),
            TRAINER: partial(_trainer, address, steps, warmup),
        }
        images = interleaved(speeds, rounds, scratch / "speed", say)
    above = [ours - least for ours, least in zip(seconds[RAY], seconds[ACTOR], strict=True)]
    return Result(
        name="engine-ray",
        question="ResNet-20, batch 128 in 4 leaves, two workers, on a Ray cluster of one node that runs already: "
        "seconds from the command to the first row of metrics next to a program that asks an empty actor once; then "
        "images/s next to the local engine and to Ray Train (DistributedDataParallel with the same micro-batches).",
        figures=[
            Figure(f"first step on Ray, above {ACTOR}", "seconds", above),
            Figure("images/s: Ray / local", "ratio", paired(images[RAY], images[LOCAL]), Target.not_behind()),
            Figure(f"images/s: Ray / {TRAINER}", "ratio", paired(images[RAY], images[TRAINER]), Target.not_behind()),
        ],
        measured=[
            *(Figure(f"first step: {name}", "seconds", values) for name, values in seconds.items()),
            *(Figure(name, "images/s", values) for name, values in images.items()),
        ],
    )


def _actor(address: str, directory: Path) -> float:
    directory.mkdir(parents=True)
    started = time.time()
    command = [sys.executable, "-m", "bench.peers.rayactor", address]
    with contestants.started_process(command, directory / "log") as process:
        contestants.finish(process, directory / "log", started)
        return time.time() - started


def _first_step(options: tuple[str, ...], directory: Path) -> float:
    done = _lockstep(options, 1, directory)
    return float(done.train_rows[0]["time"]) - done.started


def _images(options: tuple[str, ...], steps: int, warmup: int, directory: Path) -> float:
    return _lockstep(options, steps, directory).images_per_second(warmup)


def _lockstep(options: tuple[str, ...], steps: int, directory: Path) -> contestants.LockstepRun:
    return contestants.lockstep(
        directory, RECIPE, workers=WORKERS, leaves=LEAVES, steps=steps, options=options, variables=QUIET
    )


def _trainer(address: str, steps: int, warmup: int, directory: Path) -> float:
    found = onray.train(directory, address, RECIPE, world=WORKERS, leaves=LEAVES, steps=steps)
    return GLOBAL_BATCH / found.step(warmup)
