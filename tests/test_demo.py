"""The demo: the first thing a newcomer sees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lockstep.demo import as_typed, show
from lockstep.errors import UserError
from lockstep.progress import Silent
from tests.conftest import Command

NAMES = ("1-worker", "2-workers", "2-workers-one-killed")


def test_the_demo_shows_one_digest_for_one_two_and_a_killed_worker(lockstep: Command) -> None:
    result = lockstep("demo", "--steps", "20")
    assert result.returncode == 0, result.stderr
    assert "Same bits, whatever the number of workers, and whether one died" in result.stdout
    assert "worker 1 was killed by SIGKILL; the others go on" in result.stderr
    assert "tensorboard --logdir" in result.stdout
    digests = {lockstep("digest", f"demo-{name}-1").stdout for name in NAMES}
    assert len(digests) == 1
    assert digests.pop()[:32] in result.stdout


def test_the_demos_network_passes_95_percent(lockstep: Command) -> None:
    result = lockstep("train", "demo", "--workers", "2", "--run", "run")
    assert result.returncode == 0, result.stderr
    assert json.loads(Path("runs/run/best.json").read_text())["top1"] > 0.95


def test_a_place_that_cannot_be_written_to(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo` has no --run."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError, match=f"cannot write to {workspace}: change to another directory"):
        show(Silent())


def test_commands_are_shown_as_they_can_be_pasted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `make demo` they are in .venv/bin, which is on nobody's PATH."""
    for name in (".venv/bin", "other"):
        Path(name).mkdir(parents=True)
        Path(name, "lockstep").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(workspace / ".venv/bin/python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert as_typed("lockstep") == ".venv/bin/lockstep"
    assert as_typed("tensorboard") == "tensorboard"  # which is not there: a path would not help
    monkeypatch.setenv("PATH", str(workspace / "other"))
    assert as_typed("lockstep") == ".venv/bin/lockstep"
    monkeypatch.setenv("PATH", f"{workspace}/.venv/bin:{workspace}/other")
    assert as_typed("lockstep") == "lockstep"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir("other")
    assert as_typed("lockstep") == f"{workspace}/.venv/bin/lockstep"
