"""Every strategy side by side: images per second and bytes per step, next to DDP, to loops that never meet, and to the
classic way on Ray; and what a slow worker costs with and without backups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from safetensors.numpy import load_file

from bench import contestants
from bench.contestants import GLOBAL_BATCH
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from lockstep import checkpoint, injection
from lockstep.exchange import volume

LEAVES = 4
LOCAL_STEPS = 10
NO_LESS = Target(0.9, at_least=True)
MOST_BYTES = Target(1.05, at_least=False)
OPTIONS: dict[str, tuple[str, ...]] = {
    "allreduce": (),
    "server": ("--strategy", "server", "--servers", "1"),
    "two servers": ("--strategy", "server", "--servers", "2"),
    "driver": ("--strategy", "driver"),
    "averaging": ("--strategy", "averaging", "--local-steps", str(LOCAL_STEPS)),
    "async": ("--strategy", "async", "--servers", "1"),
}


@dataclass(frozen=True)
class Size:
    """How much is run."""

    rounds: int
    warmup: int
    steps: int
    """Including the warm-up."""
    local: int
    """Steps of what communicates only every ten."""


def resnet20_strategies(quick: bool, scratch: Path, say: Say) -> Result:
    size = Size(1, 1, 3, 20) if quick else Size(MIN_ROUNDS, 3, 15, 40)
    return _compare("resnet20", "ResNet-20 (0.27 million parameters), batch 128", size, NO_LESS, scratch, say)


def dense60m_strategies(quick: bool, scratch: Path, say: Say) -> Result:
    size = Size(1, 1, 2, 10) if quick else Size(MIN_ROUNDS, 1, 4, 20)
    return _compare("dense60m", "A dense network of 60 million parameters, batch 128", size, None, scratch, say)


def _compare(recipe: str, what: str, size: Size, target: Target | None, scratch: Path, say: Say) -> Result:
    figures, measured = [], []
    rows = [["workers", "strategy", "MB sent per step and worker", "x the least possible"]]
    for workers in (2, 4):
        counts: dict[str, Counts] = {}
        runs: dict[str, Contestant] = {
            name: partial(_lockstep, recipe, workers, name, size, counts) for name in OPTIONS
        }
        runs["DDP"] = partial(_ddp, recipe, workers, size)
        runs["no communication"] = partial(_bare, recipe, workers, size)
        runs["Ray objects"] = partial(_objects, recipe, workers, size)
        samples = interleaved(runs, size.rounds, scratch / str(workers), say)
        for name in ("server", "two servers", "driver", "async"):
            wanted = target if name != "async" else None
            ratio = paired(samples[name], samples["allreduce"])
            figures.append(Figure(f"{workers} workers: {name} / allreduce", "ratio", ratio, wanted))
        free = paired(samples["averaging"], samples["no communication"])
        figures.append(Figure(f"{workers} workers: averaging / no communication", "ratio", free, Target.not_behind()))
        figures.append(
            Figure(f"{workers} workers: allreduce / DDP", "ratio", paired(samples["allreduce"], samples["DDP"]))
        )
        classic = paired(samples["averaging"], samples["Ray objects"])
        figures.append(Figure(f"{workers} workers: averaging / Ray objects", "ratio", classic))
        measured += [Figure(f"{workers} workers: {name}", "images/s", values) for name, values in samples.items()]
        rows += [
            [str(workers), name, f"{found.sent / 1e6:.3f}", "" if found.least is None else f"{found.over:.4f}"]
            for name, found in counts.items()
        ]
        over = max(found.over for found in counts.values() if found.least is not None)
        what_is_sent = f"{workers} workers: bytes sent / the least possible, the worst strategy but async"
        figures.append(Figure(what_is_sent, "ratio", [over], MOST_BYTES, exact=True))
    return Result(
        name=f"strategies-{recipe}",
        question=f"{what}: every strategy with 2 and 4 workers of one thread each on two cores, next to DDP over gloo, "
        "to loops that never meet, and to the classic way on Ray (weights through the object store, averaged by the "
        f"driver every {LOCAL_STEPS} steps, as `averaging` does here).",
        figures=figures,
        measured=measured,
        table=rows,
    )


@dataclass(frozen=True)
class Counts:
    """Bytes per step and worker."""

    sent: float
    least: float | None
    """What the strategy could do with at best; None where gradients travel as they come."""

    @property
    def over(self) -> float:
        assert self.least is not None
        return self.sent / self.least


def _lockstep(recipe: str, workers: int, name: str, size: Size, counts: dict[str, Counts], directory: Path) -> float:
    steps = size.local if name == "averaging" else size.steps
    options = ("--no-tensorboard", *OPTIONS[name])
    done = contestants.lockstep(directory, recipe, workers=workers, leaves=LEAVES, steps=steps, options=options)
    rows = done.train_rows
    per_row = steps / len(rows)
    sent = median(float(row["sent_bytes"]) for row in rows) / per_row
    counts[name] = Counts(sent, least_bytes(name, done.directory, workers))
    warmup = max(1, round(size.warmup / per_row))
    return median(float(row["images_per_second"]) for row in rows[warmup:])


def least_bytes(strategy: str, run: Path, workers: int) -> float | None:
    """From the numbers that the model consists of, and in "averaging" the optimizer's."""
    newest, _ = checkpoint.newest_good(run / "checkpoints")
    assert newest is not None
    model, optimizer = (_count_floats(newest.path / name) for name in checkpoint.FILES)
    match strategy:
        case "allreduce":
            return 4 * volume.allreduce_least(model, workers)
        case "averaging":
            return 4 * volume.averaging_least(model + optimizer, workers, LOCAL_STEPS)
        case "async":
            return None
        case _:
            return 4 * volume.served_least(model)


def _count_floats(path: Path) -> int:
    tensors = load_file(path).values()
    return sum(tensor.size for tensor in tensors if tensor.dtype.kind == "f")


def _ddp(recipe: str, workers: int, size: Size, directory: Path) -> float:
    found = contestants.ddp(directory, recipe, world=workers, leaves=LEAVES, steps=size.steps)
    return GLOBAL_BATCH / found[0].step(size.warmup)


def _bare(recipe: str, workers: int, size: Size, directory: Path) -> float:
    found = contestants.bare(directory, recipe, world=workers, leaves=LEAVES, steps=size.steps)
    return sum(GLOBAL_BATCH / workers / process.step(size.warmup) for process in found)


def _objects(recipe: str, workers: int, size: Size, directory: Path) -> float:
    found = contestants.objects(
        directory, recipe, world=workers, leaves=LEAVES, steps=size.local, local_steps=LOCAL_STEPS
    )
    return GLOBAL_BATCH / found.step(LOCAL_STEPS)


SLOW = "slow worker=1 factor=10"


def stragglers(quick: bool, scratch: Path, say: Say) -> Result:
    """Three workers, one of them ten times slower, next to two that nothing disturbs."""
    rounds, steps = (1, 4) if quick else (MIN_ROUNDS, 20)
    runs: dict[str, Contestant] = {
        "two workers": partial(_seconds, 2, "", (), steps),
        "three, one slow, backups": partial(_seconds, 3, SLOW, ("--backup", "8"), steps),
        "three, one slow": partial(_seconds, 3, SLOW, (), steps),
    }
    samples = interleaved(runs, rounds, scratch, say)
    calm = samples["two workers"]
    return Result(
        name="stragglers",
        question="ResNet-20, batch 128 in 8 leaves, parameter servers; one of three workers is slowed tenfold by "
        f"sleeping. Seconds for {steps} steps next to an undisturbed run with a worker less.",
        figures=[
            Figure(
                "one slow, with backups / a worker less",
                "ratio",
                paired(samples["three, one slow, backups"], calm),
                Target(1.25, at_least=False),
            ),
            Figure("one slow, without backups / a worker less", "ratio", paired(samples["three, one slow"], calm)),
        ],
        measured=[Figure(name, "seconds", values) for name, values in samples.items()],
    )


def _seconds(workers: int, inject: str, options: tuple[str, ...], steps: int, directory: Path) -> float:
    """From the first step's end to the last one's."""
    with injection.rules(inject):
        done = contestants.lockstep(
            directory,
            "resnet20",
            workers=workers,
            leaves=8,
            steps=steps,
            options=("--strategy", "server", "--no-tensorboard", *options),
        )
    times = [float(row["time"]) for row in done.train_rows]
    return times[-1] - times[0]
