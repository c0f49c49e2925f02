"""What `--verify-every 100` costs, by accounting: too little to be seen in the speed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import contestants
from bench.contestants import LockstepRun
from bench.ratio import MIN_ROUNDS
from bench.results import Figure, Result
from bench.rounds import Say
from lockstep.metrics import Row

WORKERS, LEAVES = 2, 4
EVERY = 100
"""What is asked about."""
MEASURED_EVERY = 10
"""What is run, to see more verifications."""


@dataclass(frozen=True)
class Account:
    """Seconds, as the first worker spent them."""

    verification: float
    leaf: float
    """One of its own is computed in the verification and kept for the next step: no cost."""
    step: float

    def share(self, seconds: float) -> float:
        return seconds / (EVERY * self.step)


def verification(quick: bool, scratch: Path, say: Say) -> Result:
    rounds, steps = (1, 2 * MEASURED_EVERY) if quick else (MIN_ROUNDS, 4 * MEASURED_EVERY)
    accounts = []
    for number in range(rounds):
        run = contestants.lockstep(
            scratch / f"round{number}",
            "resnet20",
            workers=WORKERS,
            leaves=LEAVES,
            steps=steps,
            log_every=MEASURED_EVERY,
            options=("--verify-every", str(MEASURED_EVERY)),
        )
        accounts.append(new := account_of(run))
        say(f"round {number + 1}/{rounds}: a verification {new.verification:.3f} s, a step {new.step:.3f} s")
    return Result(
        name="verification",
        question=f"ResNet-20, batch 128, {LEAVES} leaves of 32, {WORKERS} workers: what `--verify-every {EVERY}` "
        f"costs, as a share of the training; measured with `--verify-every {MEASURED_EVERY}`, one sample per run.",
        figures=[
            Figure("the verify span", "share", [a.share(a.verification) for a in accounts]),
            Figure("less the leaf that is kept", "share", [a.share(a.verification - a.leaf) for a in accounts]),
        ],
        measured=[
            Figure("one verification", "seconds", [account.verification for account in accounts]),
            Figure("one leaf", "seconds", [account.leaf for account in accounts]),
            Figure("one step without verification", "seconds", [account.step for account in accounts]),
        ],
        notes=[
            "In the verify span a worker computes a leaf of its own, which it keeps for the next step, and one of "
            "another worker, digests them and its state, waits for the others and copies its state. The checksum of "
            "every leaf is not in it."
        ],
    )


def account_of(run: LockstepRun) -> Account:
    """Medians over the rows but the first, which has the start and no verification: that comes after its step's row."""
    found = [_account_of_row(row) for row in run.train_rows[1:]]
    return Account(*(median(values) for values in zip(*((a.verification, a.leaf, a.step) for a in found), strict=True)))


def _account_of_row(row: Row) -> Account:
    spans = row["spans"]
    leaves = MEASURED_EVERY * LEAVES // WORKERS + 1  # its own, and that of another worker
    leaf = sum(spans[name] for name in ("data", "forward", "backward")) / leaves
    extra = spans["verify"] - leaf
    return Account(spans["verify"], leaf, 1.0 / row["steps_per_second"] - extra / MEASURED_EVERY)
