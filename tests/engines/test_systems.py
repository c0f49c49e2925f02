"""Names that only one operating system has are used on that one alone."""

from __future__ import annotations

import ast
import ctypes
import os
import runpy
import sys
from pathlib import Path

import pytest

from lockstep import host, parent
from lockstep.engines import local
from tests.conftest import REPOSITORY

INTERFACES = {"lo", "lo0", "eth0", "en0"}


@pytest.mark.parametrize(("platform", "interface"), [("linux", "lo"), ("darwin", "lo0")])
def test_the_loopback_has_the_name_of_its_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, interface: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert runpy.run_path(local.__file__)["LOOPBACK_INTERFACE"] == interface


def test_no_other_file_names_an_interface() -> None:
    found = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "lockstep").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in INTERFACES
    }
    assert found == {"lockstep/engines/local.py"}


def test_without_proc_cgroups_or_affinity_there_are_still_cores_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Mac."""
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert host.count_cores() == os.cpu_count()
    assert host.memory_available() == host.memory_bytes() > 0
    assert host.processor()


def test_only_linux_is_asked_to_end_a_process_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def library(name: str | None) -> object:
        raise AssertionError("there is no prctl on a Mac")

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("LOCKSTEP_PARENT", "1")
    parent.follow()
    assert "LOCKSTEP_PARENT" not in os.environ
