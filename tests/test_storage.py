"""The run directory is full, or out of sight: training goes on, and nothing good is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep import checkpoint
from tests.conftest import ENDLESS, RECIPE, digest_in, run_with_program, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("mount", "unshare"))), reason="needs mount and unshare"),
]


@pytest.fixture
def small_disk(workspace: Path) -> Iterator[Path]:
    """`runs/` is a file system of 4 MiB."""
    runs = workspace / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(runs)], check=True)
    try:
        yield runs
    finally:
        subprocess.run(["umount", "--lazy", str(runs)], check=True)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def test_a_disk_that_fills_up_is_a_loud_warning_and_tried_again(small_disk: Path) -> None:
    """Rows and checkpoints that could not be written are said, training goes on, and later ones are there again."""
    process = start("train", *ENDLESS, "--set", "checkpoints.every_steps=8", "--workers", "2", "--run", "run")
    assert process.stderr is not None
    wait_for_step(process, "run", 10)
    shown = ""
    while "could not be written" not in shown or "metrics.jsonl cannot be written" not in shown:
        fill(small_disk / "filler")
        line = process.stderr.readline()
        assert line, shown
        shown += line
    assert "training goes on, and it is tried again" in shown
    newest, _ = checkpoint.newest_good(small_disk / "run/checkpoints")
    assert newest is not None  # nothing good was deleted for something that is not there
    (small_disk / "filler").unlink()
    deadline = time.monotonic() + 30
    while (later := checkpoint.newest_good(small_disk / "run/checkpoints")[0]) is None or later.step <= newest.step:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stop_and_compare(process, "run", rows=False)


def blind(workspace: Path) -> list[str]:
    """A worker that sees an empty directory where the others see the runs."""
    hide = f"mount -t tmpfs none {workspace / 'runs'} && exec {sys.executable} -m lockstep.worker"
    return ["unshare", "--mount", "sh", "-c", hide]


def test_workers_that_cannot_see_the_run_directory_save_and_resume(
    workspace: Path, undisturbed: tuple[str, list[float]]
) -> None:
    """F77: checkpoints go to the supervisor and come from it; also when everyone dies and starts anew."""
    os.environ["LOCKSTEP_INJECT"] = "kill worker=0 step=20 phase=forward; kill worker=1 step=20 phase=forward"
    try:
        first = run_with_program(blind(workspace), "train", *RECIPE, "--workers", "2", "--run", "run", "--steps", "24")
    finally:
        del os.environ["LOCKSTEP_INJECT"]
    assert digest_in(first) == undisturbed[0], first.stderr
    assert len(rows_of("run", "death")) == 2
    assert rows_of("run", "checkpoint")[0]["step"] == 8
    assert checkpoint.verify(workspace / "runs/run/checkpoints/step-000000024").digest == undisturbed[0]
    shutil.rmtree(workspace / "runs/run/checkpoints/step-000000024")
    resumed = run_with_program(blind(workspace), "resume", "run")
    assert digest_in(resumed) == undisturbed[0], resumed.stderr
    assert "24 steps from step" in resumed.stderr
