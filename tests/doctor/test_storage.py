"""What the doctor says of disks and of the clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import namedtuple
from pathlib import Path

import pytest

from lockstep.doctor import storage
from lockstep.doctor.finding import GIB, MIB
from tests.conftest import Command

Usage = namedtuple("Usage", "total used free")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_a_full_disk_is_a_problem_with_advice(lockstep: Command, workspace: Path) -> None:
    """The real command on a real file system of 4 MiB."""
    runs = workspace / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(runs)], check=True)
    try:
        said = lockstep("doctor", "--quick")
    finally:
        subprocess.run(["umount", "--lazy", str(runs)], check=True)
    assert said.returncode == 1
    assert f"problem  runs: 4 MiB free in {runs}\n" in said.stdout
    assert "what to do: free some space, or choose another place with --run" in said.stdout
    assert said.stdout.splitlines()[-1].startswith("1 problem")


def test_a_disk_with_some_room_or_little_speed_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def judge(free: int, speed: float) -> str:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10 * GIB, 0, free))
        monkeypatch.setattr(storage, "write_speed", lambda path: speed)
        found = storage.place("runs", tmp_path / "not/yet/there", "go elsewhere")
        assert (found.level == "ok") == (not found.advice)
        return found.level

    assert judge(5 * GIB, 200 * MIB) == "ok"
    assert judge(500 * MIB, 200 * MIB) == "warning"
    assert judge(5 * GIB, 5 * MIB) == "warning"
    assert judge(50 * MIB, 200 * MIB) == "problem"


def test_a_place_that_cannot_be_written_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: Path) -> float:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage, "write_speed", refuse)
    found = storage.place("cache", tmp_path, "set XDG_CACHE_HOME to another directory")
    assert (found.level, found.advice) == ("problem", "set XDG_CACHE_HOME to another directory")
    assert "Permission denied" in found.what


def test_the_speed_is_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    assert storage.write_speed(tmp_path) > 0
    skew = storage.file_clock_skew(tmp_path)
    assert skew is not None
    assert abs(skew) < storage.SKEW_SECONDS
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_is_wrong_is_a_warning(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    assert storage.clock().level == "ok"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "file_clock_skew", lambda directory: -40.0)
        assert storage.clock().level == "warning"
        assert "-40 s off" in storage.clock().what
    monkeypatch.setattr(time, "time", lambda: 86400.0)
    found = storage.clock()
    assert (found.level, found.what) == ("warning", "1970-01-02 00:00:00 UTC, before Lockstep was installed")
    assert "set the clock" in found.advice
