"""Checkpoints and resuming: whatever cut a run in two, the digest is that of a run that never stopped."""

from __future__ import annotations

import csv
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep import api, checkpoint, metrics
from lockstep.config import Job, Schedule
from lockstep.schedule import learning_rate
from tests.alone import tiny_recipe
from tests.conftest import REPOSITORY, Command, digest_in, run, start
from tests.test_rundirectory import make_run

# 2 leaves of 8 images; an epoch of the shapes has 625 steps, so every cut is in the middle of one.
TINY = ["demo", "--leaves", "2", "--batch-size", "16", "--set", "evaluation.max_leaves=1", "--set", "log_every=1"]
CONSTANT = ["--set", "schedule.name=constant", "--set", "schedule.warmup=0"]


def rows_of(run: str, kind: str) -> list[metrics.Row]:
    return [row for row in metrics.read(Path("runs") / run / "metrics.jsonl") if row["kind"] == kind]


def wait_for_step(process: subprocess.Popen[str], run: str, step: int) -> None:
    """Until the run has done so many steps; reads the metrics as they grow."""
    deadline = time.monotonic() + 60
    while not any(row["step"] >= step for row in rows_of(run, "train")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_longer_run_continues_with_other_workers_to_the_same_digest(lockstep: Command) -> None:
    """F76 F80: resume from the middle of an epoch, optimizer included; both stop exactly at their step."""
    whole = digest_in(lockstep("train", *TINY, *CONSTANT, "--steps", "12", "--workers", "1", "--run", "whole"))
    half = digest_in(lockstep("train", *TINY, *CONSTANT, "--steps", "7", "--workers", "2", "--run", "cut"))
    assert half != whole
    assert rows_of("cut", "train")[-1]["step"] == 7
    resumed = lockstep("resume", "cut", "--steps", "12", "--workers", "1")
    assert digest_in(resumed) == whole
    assert [row["step"] for row in rows_of("cut", "train")] == list(range(1, 13))
    assert [row["loss"] for row in rows_of("cut", "train")] == [row["loss"] for row in rows_of("whole", "train")]
    assert lockstep("digest", "cut").stdout.strip() == whole
    assert lockstep("digest", "runs/cut/checkpoints/step-000000007").stdout.strip() == half
    assert lockstep("digest", "last").stdout.strip() == whole


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_a_run_with_a_checkpoint(workspace: Path, number: signal.Signals) -> None:
    """F78."""
    steps = 60
    arguments = ["train", *TINY, "--steps", str(steps), "--workers", "2", "--run", "cut", "--resume"]
    process = start(*arguments, cwd=workspace)
    wait_for_step(process, "cut", 3)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number.value, err
    assert "continue with: lockstep resume cut" in out
    newest, problems = checkpoint.newest_good(workspace / "runs/cut/checkpoints")
    assert newest is not None
    assert not problems
    assert 3 <= newest.step < steps
    if number == signal.SIGINT:
        check_rerun(arguments, steps)


def check_rerun(arguments: list[str], steps: int) -> None:
    """The same command once more continues, with the learning rate of its steps (F43), to the undisturbed digest."""
    rerun = run(*arguments)
    whole = run("train", *TINY, "--steps", str(steps), "--workers", "1", "--run", "whole")
    assert digest_in(rerun) == digest_in(whole)
    rate = learning_rate(Schedule(name="cosine", lr=0.05, warmup=0.1), steps, 625.0)
    assert {row["step"]: row["lr"] for row in rows_of("cut", "train")} == {s + 1: rate(s) for s in range(steps)}


def test_a_killed_supervisor_leaves_no_process_and_a_run_that_resumes(lockstep: Command, workspace: Path) -> None:
    """The rows of metrics are those of an undisturbed run too, where the cut falls between two of them."""
    psutil = pytest.importorskip("psutil")
    arguments = ["--steps", "300", "--workers", "2", "--set", "checkpoints.every_steps=5", "--set", "log_every=3"]
    process = start("train", *TINY, *CONSTANT, *arguments, "--run", "cut", cwd=workspace)
    wait_for_step(process, "cut", 12)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 2
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    resumed = lockstep("resume", "cut", "--steps", "25")
    assert "25 steps from step" in resumed.stderr
    whole = lockstep("train", *TINY, *CONSTANT, "--steps", "25", "--set", "log_every=3", "--run", "whole")
    assert digest_in(resumed) == digest_in(whole)
    figures = [[(row["step"], row["loss"], row["top1"]) for row in rows_of(name, "train")] for name in ("cut", "whole")]
    assert figures[0] == figures[1]


def test_rows_that_a_killed_supervisor_had_not_written_are_in_the_checkpoints(
    lockstep: Command, workspace: Path
) -> None:
    """Workers are faster than a supervisor that does not get to run, and the run goes on from their checkpoint."""
    arguments = ["--workers", "2", "--set", "checkpoints.every_steps=5", "--set", "log_every=3", "--logger", "csv"]
    process = start("train", *TINY, *CONSTANT, *arguments, "--steps", "300", "--run", "cut", cwd=workspace)
    wait_for_step(process, "cut", 12)
    process.send_signal(signal.SIGSTOP)
    recorded = rows_of("cut", "train")[-1]["step"]
    deadline = time.monotonic() + 60
    while max(checkpoint.steps_of(workspace / "runs/cut/checkpoints"), default=0) < recorded + 10:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    newest, _ = checkpoint.newest_good(workspace / "runs/cut/checkpoints")
    assert newest is not None
    length = ["--steps", str(newest.step + 5)]
    resumed = lockstep("resume", "cut", *length)
    whole = lockstep("train", *TINY, *CONSTANT, *length, "--set", "log_every=3", "--run", "whole")
    assert f"{newest.step + 5} steps from step {newest.step}" in resumed.stderr, "nothing is done again"
    assert digest_in(resumed) == digest_in(whole)
    figures = [[(row["step"], row["loss"], row["top1"]) for row in rows_of(name, "train")] for name in ("cut", "whole")]
    assert figures[0] == figures[1]
    told = csv.DictReader((workspace / "runs/cut/metrics.csv").read_text().splitlines())
    assert [int(row["step"]) for row in told if row["kind"] == "train"] == [step for step, _, _ in figures[1]]


def test_checkpoints_are_written_by_step_by_epoch_and_by_time(lockstep: Command) -> None:
    """F75: each kind by itself; the last step always; the newest are kept, and listed by the supervisor. On a busy
    machine one may give way to the next."""
    by_step = ["--set", "checkpoints.every_steps=4", "--set", "checkpoints.every_seconds=0"]
    assert lockstep("train", *TINY, *by_step, "--steps", "10", "--run", "steps").returncode == 0
    written = [row["step"] for row in rows_of("steps", "checkpoint")]
    assert written in ([4, 8, 10], [4, 10], [8, 10])
    kept = sorted(path.name for path in Path("runs/steps/checkpoints").iterdir())
    assert kept == [f"step-{step:09d}" for step in written[-2:]]
    listed = json.loads(Path("runs/steps/checkpoints.json").read_text())
    assert [entry["step"] for entry in listed["checkpoints"]] == written[-2:]

    by_epoch = ["--set", "checkpoints.every_epochs=0.005", "--set", "checkpoints.every_seconds=0"]
    assert lockstep("train", *TINY, *by_epoch, "--steps", "10", "--run", "epochs").returncode == 0
    written = [row["step"] for row in rows_of("epochs", "checkpoint")]
    assert written in ([4, 7, 10], [4, 10], [7, 10])  # an epoch has 625 steps

    by_time = ["--set", "checkpoints.every_seconds=0.3"]
    assert lockstep("train", *TINY, *by_time, "--steps", "150", "--run", "time").returncode == 0
    assert len(rows_of("time", "checkpoint")) >= 2


def test_a_finished_run_only_evaluates(lockstep: Command) -> None:
    """F76 F70: nothing is trained, the figures are printed again, and the best survives (F68)."""
    first = lockstep("train", *TINY, "--steps", "4", "--workers", "1", "--run", "done")
    best = json.loads(Path("runs/done/best.json").read_text())
    Path("runs/done/best.json").unlink()  # the checkpoint knows it too
    again = lockstep("train", *TINY, "--steps", "4", "--workers", "1", "--run", "done", "--resume")
    assert again.stdout == first.stdout
    assert "top1" in first.stdout
    assert len(rows_of("done", "train")) == 4
    assert len(rows_of("done", "eval")) == 2
    assert json.loads(Path("runs/done/best.json").read_text())["top1"] == best["top1"]


def test_the_best_top1_survives_worse_evaluations_and_restarts(lockstep: Command) -> None:
    """F68: a higher best from an earlier session stays."""
    lockstep("train", *TINY, *CONSTANT, "--steps", "4", "--workers", "1", "--run", "run")
    path = Path("runs/run/best.json")
    path.write_text(json.dumps({"version": 1, "top1": 0.999, "step": 2}))
    assert "best top1 99.90%" in lockstep("resume", "run", "--steps", "6").stdout
    assert json.loads(path.read_text()) == {"version": 1, "top1": 0.999, "step": 2}


def test_a_damaged_checkpoint_is_passed_over_and_said(lockstep: Command) -> None:
    every = ["--set", "checkpoints.every_steps=4"]
    whole = digest_in(lockstep("train", *TINY, *every, "--steps", "8", "--workers", "1", "--run", "run"))
    newest = Path("runs/run/checkpoints/step-000000008")
    data = bytearray((newest / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (newest / "model.safetensors").write_bytes(data)
    resumed = lockstep("resume", "run")
    assert digest_in(resumed) == whole
    assert "model.safetensors is damaged" in resumed.stderr
    assert "an older checkpoint is used" in resumed.stderr
    assert "from step 4" in resumed.stderr
    assert checkpoint.verify(newest).digest == whole


def test_without_another_checkpoint_a_damaged_one_means_the_start(lockstep: Command) -> None:
    whole = digest_in(lockstep("train", *TINY, "--steps", "4", "--workers", "1", "--run", "run"))
    (Path("runs/run/checkpoints/step-000000004") / "model.safetensors").write_bytes(b"")
    resumed = lockstep("resume", "run")
    assert digest_in(resumed) == whole
    assert "its checksum differs; there is no older one, so training starts at step 0\n" in resumed.stderr
    assert "older checkpoint is used" not in resumed.stderr


LATE = """
import threading
from lockstep import checkpoint, writer
from lockstep.models.small import small

ending, write, finish = threading.Event(), checkpoint.write, writer.Writer.finish

def late(*arguments):
    ending.wait(60)
    return write(*arguments)

def told(self, seconds=None):
    if seconds is not None:
        ending.set()
    finish(self, seconds)

checkpoint.write, writer.Writer.finish = late, told

def net(num_classes, image_shape):
    return small(num_classes, image_shape)
"""
"""A model in whose worker nothing is written before the job is told to end."""


def test_a_checkpoint_that_is_done_after_a_second_signal_counts_everywhere(lockstep: Command, workspace: Path) -> None:
    (workspace / "late.py").write_text(LATE)
    arguments = ["--steps", "100000", "--set", "model.name=late.py:net", "--set", "checkpoints.every_steps=5"]
    process = start("train", *TINY, *CONSTANT, *arguments, "--workers", "1", "--run", "cut", cwd=workspace)
    wait_for_step(process, "cut", 7)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "once more to stop at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "stopped by SIGINT with a checkpoint" in out
    newest, _ = checkpoint.newest_good(workspace / "runs/cut/checkpoints")
    assert newest is not None
    assert rows_of("cut", "end")[-1]["digest"] == newest.digest
    listed = json.loads(Path("runs/cut/checkpoints.json").read_text())["checkpoints"]
    assert (listed[-1]["step"], listed[-1]["digest"]) == (newest.step, newest.digest)
    summary = json.loads(lockstep("runs", "--json").stdout)
    assert (summary["state"], summary["digest"]) == ("stopped", newest.digest)
    assert summary["step"] >= newest.step
    assert lockstep("digest", "cut").stdout.strip() == newest.digest


def test_a_run_that_cannot_be_written_is_refused_in_a_sentence(lockstep: Command, workspace: Path) -> None:
    """Also for root, without the capability to write in spite of the mode."""
    lockstep("train", *TINY, "--steps", "2", "--workers", "1", "--run", "run")
    directory = workspace / "runs/run"
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    directory.chmod(0o555)
    try:
        refused = subprocess.run(
            [sys.executable, "-m", "lockstep", "resume", "run", "--steps", "4"],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            preexec_fn=drop_privilege,
            capture_output=True,
            text=True,
        )
    finally:
        directory.chmod(0o755)
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.splitlines() == [
        "lockstep: cannot write to runs/run (Permission denied): see to it that there is room, and that you may"
    ]
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def drop_privilege() -> None:
    """Root obeys the modes of files after the next exec; others do so anyway."""
    prctl_capbset_drop, cap_dac_override = 24, 1
    ctypes.CDLL(None).prctl(prctl_capbset_drop, cap_dac_override, 0, 0, 0)


def test_the_stored_configuration_wins(lockstep: Command) -> None:
    """Of what the command leaves open nothing is said: an older version may have had another default for it."""
    lockstep("train", *TINY, "--steps", "3", "--workers", "1", "--run", "run")
    stored = json.loads(Path("runs/run/config.json").read_text())
    stored["recipe"]["data"]["window"] = 16
    Path("runs/run/config.json").write_text(json.dumps(stored))
    result = lockstep("train", *TINY, "--steps", "3", "--run", "run", "--resume", "--lr", "7", "--seed", "5")
    assert result.returncode == 0
    assert "window" not in result.stderr
    assert "schedule.lr stays 0.05, 7.0 is ignored" in result.stderr
    assert "seed stays 0, 5 is ignored" in result.stderr
    assert json.loads(Path("runs/run/config.json").read_text())["recipe"]["seed"] == 0


def test_a_run_that_invited_hosts_says_how_they_can_join_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = make_run("runs/run")
    monkeypatch.setattr(api, "_supervise", lambda *_: None)
    for listen, is_told in (("127.0.0.1", True), (None, False)):
        directory.write_config(tiny_recipe(), Job(workers=1, listen=listen))
        api.resume("run")
        told = "with --listen 127.0.0.1 they can again" in capfd.readouterr().err
        assert told == is_told
