"""What goes wrong while a job runs: the first cause, the worker and the log reach the person; no process stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep import api, checkpoint
from lockstep.errors import JobError
from lockstep.request import Request
from lockstep.supervisor.machine import Machine
from tests.conftest import Command, start
from tests.test_resume import TINY, rows_of, wait_for_step

RAISING = """
import torch
from torch import nn

class Raising(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = nn.Linear(3072, num_classes)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.training and self.calls == 7:  # the probe was the first
            raise RuntimeError("the user's own mistake")
        return self.layer(x.flatten(1))

def net(num_classes, image_shape):
    return Raising(num_classes)
"""


def test_a_worker_that_raises_is_shown_once_with_place_and_log(lockstep: Command, workspace: Path) -> None:
    (workspace / "mine.py").write_text(RAISING)
    result = lockstep("train", *TINY, "--set", f"model.name={workspace}/mine.py:net", "--steps", "9", "--workers", "2")
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert result.stderr.count("RuntimeError: the user's own mistake") == 1
    assert "worker " in result.stderr
    assert "step 5, leaf " in result.stderr
    log = Path(result.stderr.split("its log is ")[1].splitlines()[0])
    assert "the user's own mistake" in log.read_text()


def test_the_last_worker_killed_ends_the_job_with_its_cause_and_no_orphan(lockstep: Command, workspace: Path) -> None:
    arguments = ["--steps", "100000", "--workers", "2", "--no-replace", "--run", "run"]
    process = start("train", *TINY, *arguments, cwd=workspace)
    wait_for_step(process, "run", 3)
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1, out
    assert "all workers are dead; the first cause: worker" in err
    assert "was killed by SIGKILL" in err
    assert "its log is runs/run/logs/worker-" in err
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


def test_a_process_that_cannot_even_connect_is_explained(workspace: Path) -> None:
    program = (sys.executable, "-c", "raise SystemExit('no libcuda on this host')")
    with pytest.raises(JobError, match=r"(?s)worker 0, ended with exit code 1.*no libcuda on this host.*worker-0\.log"):
        api.train("demo", Request(workers=1, steps=1, program=program), run="run")


def test_a_mistake_in_the_supervisor_is_what_is_shown_and_not_what_follows_from_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that it tells to go ends with exit code 0, which would be a cause by itself."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Machine, "_on_ready", fail)
    with pytest.raises(JobError, match=r"(?s)the supervisor failed, which is a bug in Lockstep: .*a mistake"):
        api.train("demo", Request(workers=1, steps=1), run="run")
    assert [row["state"] for row in rows_of("run", "end")] == ["failed"]


def test_a_worker_that_cannot_start_is_explained(lockstep: Command, workspace: Path) -> None:
    (workspace / "mine.py").write_text("import a_module_that_is_not_there\n\ndef net(num_classes, image_shape): ...\n")
    result = lockstep("train", *TINY, "--set", f"model.name={workspace}/mine.py:net", "--steps", "9", "--workers", "1")
    assert result.returncode == 1
    assert "No module named 'a_module_that_is_not_there'" in result.stderr
    assert "its log is" in result.stderr


def test_a_loss_that_is_not_a_number_names_step_and_leaf(lockstep: Command, workspace: Path) -> None:
    arguments = ["--set", "checkpoints.every_steps=2", "--set", "schedule.name=step", "--set", "schedule.unit=steps"]
    jump = ["--set", "schedule.boundaries=[4]", "--set", "schedule.factors=[1e30]", "--set", "schedule.warmup=0"]
    result = lockstep("train", *TINY, *arguments, *jump, "--steps", "50", "--workers", "2", "--run", "run")
    assert result.returncode == 1
    assert "the loss is not a number at step 5, leaf 0" in result.stderr.replace("leaf 1", "leaf 0")
    assert "Traceback" not in result.stderr
    newest, _ = checkpoint.newest_good(workspace / "runs/run/checkpoints")
    assert newest is not None
    assert newest.step == 4
    assert rows_of("run", "end")[0]["state"] == "failed"


SLOW_DISK = """
import time
from lockstep import checkpoint, worker

write = checkpoint.write
checkpoint.write = lambda *arguments: (time.sleep(1.0), write(*arguments))[1]
worker.main()
"""


def test_a_checkpoint_that_is_being_written_when_the_job_fails_is_not_lost(workspace: Path) -> None:
    settings = ["checkpoints.every_steps=2", "schedule.name=step", "schedule.unit=steps", "schedule.boundaries=[2]"]
    request = Request(
        workers=2,
        leaves=2,
        batch_size=4,
        steps=9,
        settings=[*settings, "schedule.factors=[1e30]", "schedule.warmup=0"],
        program=(sys.executable, "-c", SLOW_DISK),
    )
    with pytest.raises(JobError, match="the loss is not a number at step 3"):
        api.train("demo", request, run="run")
    newest, _ = checkpoint.newest_good(workspace / "runs/run/checkpoints")
    assert newest is not None
    assert newest.step == 2


def test_two_supervisors_cannot_train_one_run(lockstep: Command, workspace: Path) -> None:
    process = start("train", *TINY, "--steps", "100000", "--workers", "1", "--run", "run", cwd=workspace)
    try:
        wait_for_step(process, "run", 1)
        second = lockstep("resume", "run")
        assert second.returncode == 2
        assert "being trained by another process" in second.stderr
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def stopping_in_vain(workspace: Path, wish: signal.Signals) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run that has been asked to end, and its processes, which stand still and write no checkpoint."""
    process = start("train", *TINY, "--steps", "100000", "--workers", "2", "--run", "run", cwd=workspace)
    wait_for_step(process, "run", 1)
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        child.suspend()
    process.send_signal(wish)
    while "stopping" not in (line := process.stderr.readline()):  # type: ignore[union-attr]
        assert line
    return process, children


def test_a_second_signal_stops_at_once(workspace: Path) -> None:
    """Even when no checkpoint can be written, because a worker is stopped."""
    process, children = stopping_in_vain(workspace, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    start_time = time.monotonic()
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - start_time < 10
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


def test_a_signal_ends_a_run_whose_workers_all_die_before_they_could_save(workspace: Path) -> None:
    """As when a host takes its processes down with it; nobody need ask twice."""
    process, children = stopping_in_vain(workspace, signal.SIGTERM)
    for child in children:
        child.kill()
    out, shown = process.communicate(timeout=30)
    assert process.returncode == 143, shown
    assert "; nobody is left\n" in shown
    assert "stopped by SIGTERM at once, without a new checkpoint; continue with: lockstep resume run" in out
    assert len(rows_of("run", "death")) == 2


def test_a_lost_terminal_ends_no_training(workspace: Path) -> None:
    """Whoever read what is shown is gone; SIGHUP, which usually comes with it, still ends the run with a checkpoint."""
    process = start("train", *TINY, "--steps", "100000", "--workers", "2", "--run", "run", cwd=workspace)
    wait_for_step(process, "run", 3)
    assert process.stderr is not None
    process.stderr.close()
    os.kill(psutil.Process(process.pid).children()[0].pid, signal.SIGKILL)  # which would be shown
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 20)
    assert len(rows_of("run", "death")) == 1
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 129
    assert checkpoint.newest_good(workspace / "runs/run/checkpoints")[0] is not None


def test_a_run_that_began_with_nohup_survives_a_logout(workspace: Path) -> None:
    """It goes on as if nothing had happened; what else stops a run still does."""
    process = start("train", *TINY, "--steps", "100000", "--workers", "1", "--run", "run", before=("nohup",))
    wait_for_step(process, "run", 1)
    process.send_signal(signal.SIGHUP)
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 20)
    process.send_signal(signal.SIGTERM)
    _, shown = process.communicate(timeout=30)
    assert process.returncode == 143, shown
    assert "SIGHUP" not in shown
    assert checkpoint.newest_good(workspace / "runs/run/checkpoints")[0] is not None
