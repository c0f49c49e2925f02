"""The self-test: two leaves, computed by one worker process and by two, must end on one digest."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lockstep
from lockstep.doctor.finding import Finding

TRAIN = (
    *("train", "demo", "--steps", "2", "--leaves", "2", "--batch-size", "8", "--no-tensorboard"),
    *("--set", "evaluation.leaf_batch=50", "--set", "evaluation.max_leaves=2"),
)
LIMIT_SECONDS = 180.0


class TrainingError(Exception):
    """A training did not end as it should; the message is the last line that it wrote."""


def digests() -> Finding:
    """The real command, as a user would type it, in a directory of its own."""
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="lockstep-doctor-") as directory:
            one, two = (train(workers, Path(directory)) for workers in (1, 2))
    except (TrainingError, OSError) as failure:
        advice = "solve the problems above; if there are none, `lockstep train demo` and its logs tell more"
        return Finding("problem", "self-test", f"a training of two steps failed: {failure}", advice)
    seconds = time.monotonic() - start
    if one != two:
        what = f"1 worker gave the digest {one[:16]}…, 2 workers {two[:16]}…"
        return Finding("problem", "self-test", what, "suspect memory or processor, then report it as a bug in Lockstep")
    return Finding("ok", "self-test", f"1 worker and 2 workers gave the digest {one[:16]}…, in {seconds:.0f} s")


def train(workers: int, directory: Path) -> str:
    """The digest that a training with so many workers prints."""
    command = [sys.executable, "-m", "lockstep", *TRAIN, "--workers", str(workers), "--run", f"workers-{workers}"]
    package = str(Path(lockstep.__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    try:
        ended = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise TrainingError(f"it took more than {LIMIT_SECONDS:.0f} s") from None
    last = (ended.stdout.splitlines() or [""])[-1]
    if ended.returncode or not last.startswith("digest "):
        raise TrainingError((ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1])
    return last.split()[1]
