"""How soon CIFAR-10 is learnt: `fast-cifar10`, DDP and a bare loop with the same network, the ResNet-18 of common
tutorials, and how far one comes in an hour.

And the table of the parameter-server system done right: one recipe with 1, 2 and 4 workers, one digest, one accuracy.
These take hours, need the data (`--data DIR`), and run only when they are named. Interrupted, they go on behind the
last training that was finished. Where times are compared, everyone trains in the precision that is fastest here.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.contestants import RECIPES
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Say
from bench.trainings import Memory, Trained, fastest_precision, lockstep, plain

SEEDS = (0, 1, 2)
CAP_MINUTES = 60.0
BEGUN = 100
"""Steps in which one worker shows that it has the digest of two; all of them would take it twice the time."""
MINUTES = {"the first": Target(20.0, at_least=False), "the second": Target(15.0, at_least=False)}
"""In which 90 % should be reached: first the one, then the other."""
WIDER = ("--epochs", "25", "--set", "model.options.width=96", "--set", "data.crop_padding=4", "--set", "data.cutout=8")
"""What turns `fast-cifar10` into a training of an hour: 2.2 times the operations for an image, twice the epochs."""
TABLE_MINUTES = 10.0
"""For each number of workers in the table."""


def fast_cifar10(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """Ours with three seeds, DDP with the first of them; then the beginning with one worker and with two."""
    short = ("--steps", "4", "--set", "evaluation.max_leaves=4") if quick else ()
    precision = fastest_precision()
    alike = ("--precision", precision)
    ours: list[Trained] = []
    ddp: list[Trained] = []
    for seed in SEEDS[:1] if quick else SEEDS:
        options = ("--seed", str(seed), *alike, *short)
        train = partial(lockstep, scratch / f"ours{seed}", "fast-cifar10", 2, options)
        ours.append(memory.recall(f"Lockstep, seed {seed}, {precision}", train))
        say(f"Lockstep, seed {seed}: {ours[-1].top1:.2%} after {ours[-1].minutes:.1f} min")
        if not ddp:
            steps = 4 if quick else None
            train = partial(plain, scratch / f"ddp{seed}", "fast-cifar10", seed, steps=steps, options=alike)
            ddp.append(memory.recall(f"DDP, seed {seed}, {precision}", train))
            say(f"DDP, seed {seed}: {ddp[-1].top1:.2%} after {ddp[-1].minutes:.1f} min")
    begun = []
    for workers in (1, 2):
        options = (*alike, "--stop-at", str(4 if quick else BEGUN))
        train = partial(lockstep, scratch / f"begun{workers}", "fast-cifar10", workers, options)
        begun.append(memory.recall(f"begun, {workers} workers, {precision}", train))
    say(f"digests of the beginning: {', '.join(run.digest[:12] for run in begun)}")
    slowest = [max(run.minutes for run in ours)]
    return Result(
        name="fast-cifar10",
        question="`fast-cifar10` on two workers with one thread each, three seeds, from the command to the evaluation "
        "of the whole test set, next to DDP (the first seed) with the same network, optimizer and schedule, all in "
        f"{precision}. The data is a JPEG copy of CIFAR-10, slightly lossy: accuracies are one or two points below "
        "those on the original.",
        figures=[
            Figure("Lockstep: top1, the worst seed", "share", [min(run.top1 for run in ours)], Target(0.9, True), True),
            *(
                Figure(f"Lockstep: minutes, the slowest seed, {which} goal", "minutes", slowest, goal, True)
                for which, goal in MINUTES.items()
            ),
            Figure(
                f"digests that one and two workers give in {begun[0].steps} steps",
                "count",
                [len({run.digest for run in begun})],
                ONE,
                True,
            ),
        ],
        table=_table({"Lockstep": ours, "DDP": ddp}),
    )


ONE = Target(1.0, at_least=False)


OURS, BARE, DDP = "Lockstep, 2 workers", "a bare loop, all cores", "DDP, 2 processes"
SHORT_EPOCHS = 2.0
EVERY_STEPS = 24
"""Four evaluations in an epoch."""
WANTED = 0.8


def time_to_accuracy(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """Everyone trains the same network with the same settings, from the command to the accuracy."""
    precision, wanted = fastest_precision(), 0.05 if quick else WANTED
    length = ("--steps", "4") if quick else ("--epochs", str(SHORT_EPOCHS))
    every = 2 if quick else EVERY_STEPS
    found: dict[str, list[Trained]] = {OURS: [], BARE: [], DDP: []}
    for seed in range(1 if quick else MIN_ROUNDS):
        where = scratch / str(seed)
        alike = (*length, "--precision", precision)
        often = ("--set", f"evaluation.every_steps={every}", "--set", "evaluation.views=one")  # six take too long
        ours = (*alike, "--seed", str(seed), *often)
        theirs = (*alike, *often)
        runs = {
            OURS: partial(lockstep, where / "ours", "fast-cifar10", 2, ours),
            BARE: partial(plain, where / "bare", "fast-cifar10", seed, world=1, options=theirs),
            DDP: partial(plain, where / "ddp", "fast-cifar10", seed, world=2, options=theirs),
        }
        for name, train in runs.items():
            found[name].append(memory.recall(f"{name}, seed {seed}, {precision}", train))
            say(f"{name}, seed {seed}: {found[name][-1].top1:.2%} after {found[name][-1].minutes:.1f} min")
    return to_accuracy(found, wanted, precision)


def to_accuracy(found: dict[str, list[Trained]], wanted: float, precision: str) -> Result:
    """Minutes to the accuracy side by side, and ratios of the seeds that both brought there. Pure."""
    minutes = {name: [run.minutes_to(wanted) for run in runs] for name, runs in found.items()}
    figures = []
    for name in (BARE, DDP):
        pairs = [(a, b) for a, b in zip(minutes[OURS], minutes[name], strict=True) if a is not None and b is not None]
        if pairs:
            ratios = paired(*zip(*pairs, strict=True))
            figures.append(Figure(f"minutes to {wanted:.0%}: {OURS} / {name}", "ratio", ratios, Target.not_above()))
    reached = {name: [one for one in values if one is not None] for name, values in minutes.items()}
    return Result(
        name="time-to-accuracy",
        question=f"`fast-cifar10` with {SHORT_EPOCHS:g} epochs, a seed for each round: minutes from the command to "
        f"the first evaluation that shows a top1 of {wanted:.0%}, evaluated every {EVERY_STEPS} steps. Everyone has "
        f"the same network, optimizer, schedule and augmentation, computes in {precision}, and has two cores. The data "
        "is the JPEG copy of CIFAR-10.",
        figures=figures,
        table=_table(found),
        measured=[Figure(f"{name}: to {wanted:.0%}", "minutes", values) for name, values in reached.items() if values],
        notes=[
            f"{name} reached it with {len(reached[name])} of {len(found[name])} seeds."
            for name in found
            if len(reached[name]) < len(found[name])
        ],
    )


def tutorial_resnet18(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """What the usual tutorial's network has reached after an hour."""
    minutes = 0.1 if quick else CAP_MINUTES
    train = partial(plain, scratch / "resnet18", f"{RECIPES}:tutorial_resnet18", 0, minutes=minutes)
    found = memory.recall("ResNet-18", train)
    say(f"ResNet-18: {found.top1:.2%} after {found.minutes:.1f} min")
    return Result(
        name="tutorial-resnet18",
        question="The ResNet-18 of common tutorials (11 million weights, batch 128, SGD 0.1, cosine over 200 epochs) "
        f"under DDP on two processes with one thread each, in fp32: accuracy after {CAP_MINUTES:.0f} minutes, on the "
        "JPEG copy of CIFAR-10.",
        figures=[Figure("top1 after the time", "share", [found.top1], None, True)],
        table=_table({"ResNet-18": [found]}),
    )


def hour_cifar10(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """How far `fast-cifar10` comes in an hour, with a wider network and stronger augmentation."""
    short = ("--steps", "4", "--set", "evaluation.max_leaves=4") if quick else ()
    precision = fastest_precision()
    options = ("--precision", precision, *WIDER, *short)
    train = partial(lockstep, scratch / "hour", "fast-cifar10", 2, options)
    found = memory.recall(f"Lockstep, {' '.join(options)}", train)
    say(f"Lockstep: {found.top1:.2%} after {found.minutes:.1f} min")
    return Result(
        name="hour-cifar10",
        question=f"`fast-cifar10` for an hour, `{' '.join(options)}`, on two workers with one thread each, one seed, "
        "from the command to the evaluation of the whole test set. The data is the JPEG copy of CIFAR-10.",
        figures=[
            Figure("Lockstep: top1", "share", [found.top1], Target(0.93, True), True),
            Figure("Lockstep: minutes", "minutes", [found.minutes], Target(CAP_MINUTES, at_least=False), True),
        ],
        table=_table({"Lockstep": [found]}),
    )


def resnet50_6n2(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """As many steps as one worker does in the time, then the same steps with two and four."""
    steps = 2 if quick else measure_steps(memory, scratch, say)
    runs = {}
    for workers in (1, 2, 4):
        options = ("--stop-at", str(steps), *(("--set", "evaluation.max_leaves=2") if quick else ()))
        train = partial(lockstep, scratch / f"workers{workers}", "resnet50-6n2-cifar10", workers, options)
        runs[workers] = memory.recall(f"{workers} workers, {steps} steps", train)
        say(f"{workers} workers: {runs[workers].top1:.2%}, {steps / runs[workers].minutes / 60:.2f} steps/s")
    digests, accuracies = {run.digest for run in runs.values()}, {run.top1 for run in runs.values()}
    return Result(
        name="resnet50-6n2",
        question=f"`resnet50-6n2-cifar10`, batch 128, the first {steps} steps with 1, 2 and 4 workers on two cores: as "
        f"many as one worker does in {TABLE_MINUTES:.0f} minutes. The data is the JPEG copy of CIFAR-10. The system "
        "that published this table got 93.6 % from one process and 85.2 to 87.3 % from several, on the original images "
        "and to the end of the schedule.",
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
STRATEGY_EPOCHS = 2.0


def strategies(quick: bool, scratch: Path, say: Say, memory: Memory) -> Result:
    """ResNet-20 with every strategy, for as many epochs each: the synchronous ones are one result."""
    length = ("--steps", "20") if quick else ("--epochs", str(STRATEGY_EPOCHS))
    runs = {}
    for number, (name, options) in enumerate(STRATEGIES.items()):
        train = partial(lockstep, scratch / str(number), "resnet20-cifar10", 2, (*options, *length))
        runs[name] = memory.recall(name, train)
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


def measure_steps(memory: Memory, scratch: Path, say: Say) -> int:
    """How many steps fit the time with one worker, from a short run."""
    options = ("--stop-at", "20", "--set", "evaluation.max_leaves=1")
    train = partial(lockstep, scratch / "speed", "resnet50-6n2-cifar10", 1, options)
    speed = memory.recall("speed", train).images_per_second / 128
    steps = int(TABLE_MINUTES * 60 * speed)
    say(f"{speed:.2f} steps/s with one worker: {steps} steps")
    return steps


def _table(contestants: dict[str, list[Trained]]) -> list[list[str]]:
    rows = [
        [name, str(number), f"{run.top1:.2%}", f"{run.minutes:.1f}", str(run.steps), run.digest[:12]]
        for name, runs in contestants.items()
        for number, run in enumerate(runs)
    ]
    return [["", "seed", "top1", "minutes", "steps", "digest"], *rows]
