"""Where the time of a step goes, from Lockstep's own spans, and what supervision costs.

A step of the first worker is data, forward, backward and optimizer, which is training, and the rest: the exchange, the
report, and bookkeeping without a span of its own. Of the exchange, only what comes after the last worker has arrived
is its cost; before that, one worker waits for a slower one. The data span is waiting for a leaf that should have been
read ahead, so it is measured with files and augmentation too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench import contestants, traced
from bench.contestants import LockstepRun
from bench.ratio import MIN_ROUNDS, Target
from bench.results import Figure, Result
from bench.rounds import Say

TRAINING = ("data", "forward", "backward", "optimizer")
WORKERS = (1, 2)
LEAVES = 4

OVERHEAD_TARGET = Target(0.05, at_least=False)
SUPERVISION_TARGET = Target(0.01, at_least=False)
WAITING_FOR_DATA_TARGET = Target(0.01, at_least=False)

DATA_WORKERS = 2
CROPS_AND_FLIPS = ("--data", "shapes", "--set", "data.crop_padding=4", "--set", "data.flip=true")
"""Those of the ResNets for CIFAR-10, on images from files in CIFAR's binary format."""
DATA: dict[str, tuple[str, ...]] = {
    "crops and flips": CROPS_AND_FLIPS,
    "crops, flips, TrivialAugment and cutout": (
        *CROPS_AND_FLIPS,
        "--set",
        "data.policy=trivial",
        "--set",
        "data.cutout=16",
    ),
}
"""What is done to the images while their share of a step is taken."""


@dataclass(frozen=True)
class Account:
    """Seconds of the steps between two rows of metrics, as the first worker spent them."""

    total: float
    spans: Mapping[str, float]
    waiting: float
    """Part of the exchange: until the last worker had arrived."""
    mean_waiting: float
    """The mean over all workers: in one run the first worker waits, in another it is waited for."""
    supervisor: float
    """Processor seconds of the supervisor's process."""
    threads: float
    """Processor seconds of the worker's threads that talk to the supervisor."""

    @property
    def bookkeeping(self) -> float:
        return self.total - sum(self.spans.values())

    @property
    def exchange(self) -> float:
        return self.spans.get("exchange", 0.0) - self.waiting

    @property
    def data(self) -> float:
        return self.spans.get("data", 0.0)

    @property
    def report(self) -> float:
        return self.spans.get("report", 0.0)

    @property
    def overhead(self) -> float:
        """Exchange, supervision and bookkeeping; the supervisor's own seconds pass beside the worker's."""
        return self.exchange + self.report + self.bookkeeping

    @property
    def supervision(self) -> float:
        """As if every processor second of supervision were taken from the training."""
        return self.report + self.supervisor + self.threads


def accounting(quick: bool, scratch: Path, say: Say) -> Result:
    rounds, log_every = (1, 3) if quick else (MIN_ROUNDS, 10)
    accounts: dict[int, list[Account]] = {workers: [] for workers in WORKERS}
    reading: dict[str, list[Account]] = {what: [] for what in DATA}
    for number in range(rounds):
        place = scratch / f"round{number}"
        for workers, found in accounts.items():
            found.append(account(place / str(workers), workers, log_every))
        for what, options in DATA.items():
            reading[what].append(account(place / what, DATA_WORKERS, log_every, options))
        newest = [_summary(workers, found[-1]) for workers, found in accounts.items()]
        newest += [f"{what} {found[-1].data / found[-1].total:.2%}" for what, found in reading.items()]
        say(f"round {number + 1}/{rounds}: " + ", ".join(newest))
    return Result(
        name="accounting",
        question="ResNet-20, leaf 32: where the time of a step goes in the first worker, as shares of the step. One "
        f"sample is {log_every} steps of a run of its own, after {log_every} to warm up.",
        figures=[
            *(figure for workers in WORKERS for figure in _figures(workers, accounts[workers])),
            *(_waiting_for_data(what, found) for what, found in reading.items()),
        ],
        measured=[series for workers in WORKERS for series in _measured(workers, accounts[workers])],
        notes=[
            "The exchange counts from the arrival of the last worker; before that, one waits for a slower one. That "
            "wait is not in the figures with a target, and shown beside them as the mean over the workers. Bookkeeping "
            "is what has no span: seeding, adding up leaves, counting hits, checks. Supervision counts every processor "
            "second of the supervisor's process, as if it were taken from the training, the report span, and the "
            "worker's control and heartbeat threads. Waiting for data is measured with images from files, all else "
            "with random ones."
        ],
    )


def account(directory: Path, workers: int, log_every: int, options: Sequence[str] = ()) -> Account:
    """A run of its own, and what its second half was spent on."""
    run = contestants.lockstep(
        directory,
        "resnet20",
        workers=workers,
        leaves=LEAVES,
        steps=2 * log_every,
        log_every=log_every,
        module=("bench.traced",),
        options=options,
        watched=True,
    )
    return account_of(run, workers)


def account_of(run: LockstepRun, workers: int) -> Account:
    """The steps between the two rows of a run; those before the first row hold the start."""
    before, row = run.train_rows
    exchanges = [traced.read(run.directory, worker) for worker in range(workers)]
    steps = range(before["step"], row["step"])
    arrived = {step: max(known[step]["begin"] for known in exchanges) for step in steps}
    waiting = [sum(arrived[step] - known[step]["begin"] for step in steps) for known in exchanges]
    return Account(
        total=len(steps) / row["steps_per_second"],
        spans=row["spans"],
        waiting=waiting[0],
        mean_waiting=fmean(waiting),
        supervisor=run.watch.processor_between(before["time"], row["time"]),
        threads=exchanges[0][steps[-1]]["supervision"] - exchanges[0][steps[0] - 1]["supervision"],
    )


def _figures(workers: int, accounts: list[Account]) -> list[Figure]:
    overhead = [account.overhead / account.total for account in accounts]
    supervision = [account.supervision / account.total for account in accounts]
    waiting = [account.mean_waiting / account.total for account in accounts]
    figures = [
        Figure(f"{_name(workers)}: exchange, report and bookkeeping", "share", overhead, OVERHEAD_TARGET),
        Figure(f"{_name(workers)}: supervision and metrics", "share", supervision, SUPERVISION_TARGET),
    ]
    return figures + ([Figure(f"{_name(workers)}: waiting for a slower one", "share", waiting)] if workers > 1 else [])


def _waiting_for_data(what: str, accounts: list[Account]) -> Figure:
    shares = [account.data / account.total for account in accounts]
    return Figure(f"{_name(DATA_WORKERS)}: waiting for data, {what}", "share", shares, WAITING_FOR_DATA_TARGET)


def _measured(workers: int, accounts: list[Account]) -> list[Figure]:
    shares = {name: [account.spans.get(name, 0.0) for account in accounts] for name in TRAINING}
    shares |= {
        "exchange": [account.exchange for account in accounts],
        "waiting for a slower worker": [account.waiting for account in accounts],
        "report": [account.report for account in accounts],
        "bookkeeping": [account.bookkeeping for account in accounts],
        "processor time of the supervisor": [account.supervisor for account in accounts],
        "processor time of control and heartbeat threads": [account.threads for account in accounts],
    }
    totals = [account.total for account in accounts]
    return [
        Figure(f"{_name(workers)}: {what}", "share", [part / total for part, total in zip(parts, totals, strict=True)])
        for what, parts in shares.items()
    ]


def _name(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers} workers"


def _summary(workers: int, account: Account) -> str:
    return (
        f"{_name(workers)} overhead {account.overhead / account.total:.2%}, "
        f"supervision {account.supervision / account.total:.2%}"
    )
