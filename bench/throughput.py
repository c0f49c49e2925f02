"""Images per second: Lockstep next to a bare loop, to two loops that never meet, and to DDP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench import contestants
from bench.contestants import GLOBAL_BATCH, PeerRun
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved

LEAVES = (4, 8)
"""V: leaves of 32 and of 16 images."""
RECIPE = "resnet20"
CONTROL = "bare, leaf 32, again"
"""The same program once more: how far from 1 its ratio strays is the noise of the run."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    rounds: int
    warmup: int
    steps: int
    """Including the warm-up."""


def one_worker(quick: bool, scratch: Path, say: Say) -> Result:
    size = Size(1, 1, 4) if quick else Size(MIN_ROUNDS, 2, 12)
    coarse, fine = LEAVES
    runs = {  # rivals run one after the other, the control as well
        _lockstep_name(coarse): _lockstep(1, coarse, size),
        _bare_name(coarse): _bare(1, coarse, size),
        CONTROL: _bare(1, coarse, size),
        _bare_name(fine): _bare(1, fine, size),
        _lockstep_name(fine): _lockstep(1, fine, size),
    }
    samples = interleaved(runs, size.rounds, scratch, say)
    control = paired(samples[CONTROL], samples[_bare_name(coarse)])
    return Result(
        name="one-worker",
        question="ResNet-20, batch 128, one thread: Lockstep with one worker next to a bare PyTorch loop with the same "
        "micro-batches.",
        figures=[
            Figure(
                f"leaf {GLOBAL_BATCH // leaves}: Lockstep / bare loop",
                "ratio",
                paired(samples[_lockstep_name(leaves)], samples[_bare_name(leaves)]),
                Target.not_behind(),
            )
            for leaves in LEAVES
        ]
        + [Figure("control: the bare loop, leaf 32 / itself", "ratio", control)],
        measured=[Figure(name, "images/s", values) for name, values in samples.items()],
    )


def two_workers(quick: bool, scratch: Path, say: Say) -> Result:
    size = Size(1, 1, 5) if quick else Size(MIN_ROUNDS, 3, 18)
    plain = "DDP, one batch of 64 each"
    coarse, fine = LEAVES
    runs = {  # rivals run close to each other
        _bare_name(coarse): _bare(2, coarse, size),
        _ddp_name(coarse): _ddp(coarse, size),
        _lockstep_name(coarse): _lockstep(2, coarse, size),
        plain: _ddp(2, size),
        _lockstep_name(fine): _lockstep(2, fine, size),
        _ddp_name(fine): _ddp(fine, size),
        _bare_name(fine): _bare(2, fine, size),
    }
    samples = interleaved(runs, size.rounds, scratch, say)
    figures = []
    for leaves in LEAVES:
        rivals = {
            "DDP with the same micro-batches": (_ddp_name(leaves), Target.not_behind()),
            plain: (plain, Target.not_behind()),
            "two loops that do not communicate": (_bare_name(leaves), None),
        }
        figures += [
            Figure(
                f"leaf {GLOBAL_BATCH // leaves}: Lockstep / {words}",
                "ratio",
                paired(samples[_lockstep_name(leaves)], samples[rival]),
                target,
            )
            for words, (rival, target) in rivals.items()
        ]
    return Result(
        name="two-workers",
        question="ResNet-20, batch 128, two processes with one thread each: Lockstep next to DDP over gloo, and to two "
        "bare loops that never meet, which is what two cores could do if communication and waiting were free.",
        figures=figures,
        measured=[Figure(name, "images/s", values) for name, values in samples.items()],
    )


def _lockstep_name(leaves: int) -> str:
    return f"Lockstep, leaf {GLOBAL_BATCH // leaves}"


def _bare_name(leaves: int) -> str:
    return f"bare, leaf {GLOBAL_BATCH // leaves}"


def _ddp_name(leaves: int) -> str:
    return f"DDP, micro-batch {GLOBAL_BATCH // leaves}"


def _lockstep(workers: int, leaves: int, size: Size) -> Contestant:
    def run(directory: Path) -> float:
        done = contestants.lockstep(directory, RECIPE, workers=workers, leaves=leaves, steps=size.steps)
        return done.images_per_second(size.warmup)

    return run


def _bare(world: int, leaves: int, size: Size) -> Contestant:
    def run(directory: Path) -> float:
        processes = contestants.bare(directory, RECIPE, world=world, leaves=leaves, steps=size.steps)
        return sum(GLOBAL_BATCH / world / process.step(size.warmup) for process in processes)

    return run


def _ddp(leaves: int, size: Size) -> Contestant:
    def run(directory: Path) -> float:
        processes: list[PeerRun] = contestants.ddp(directory, RECIPE, world=2, leaves=leaves, steps=size.steps)
        return GLOBAL_BATCH / processes[0].step(size.warmup)  # both have the same steps

    return run
