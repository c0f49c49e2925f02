"""The command `lockstep doctor`: its lines, its exit codes, its self-test."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from lockstep import doctor
from lockstep.doctor import machine, network, selftest
from lockstep.doctor.finding import Finding
from lockstep.engines.local import LOOPBACK_INTERFACE
from tests.conftest import Command

FINE = Finding("ok", "cores", "2 of 2 usable")
SLOW = Finding("warning", "runs", "written at 3 MiB/s", "take a faster disk")
BAD = Finding("problem", "loopback", "127.0.0.1 cannot be connected to", "bring the interface up")


def test_the_real_machine_passes_with_the_self_test(lockstep: Command, workspace: Path) -> None:
    """Every check once, and 1 and 2 worker processes with one digest."""
    said = lockstep("doctor", "--json")
    document = json.loads(said.stdout)
    found = {finding["name"]: finding for finding in document["findings"]}
    assert list(found) == [*doctor.CHECKS, doctor.SELF_TEST]
    assert said.returncode == (1 if document["problem"] else 0)
    assert found["self-test"]["level"] == "ok", found["self-test"]
    assert "1 worker and 2 workers gave the digest" in found["self-test"]["what"]
    assert not [finding for finding in found.values() if "could not be checked" in finding["what"]]
    assert all(finding["advice"] or finding["level"] == "ok" for finding in found.values())
    assert list(workspace.iterdir()) == []


def test_lines_advice_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.show([FINE, SLOW], as_json=False) == 0
    assert capsys.readouterr().out == (
        "ok       cores: 2 of 2 usable\n"
        "warning  runs: written at 3 MiB/s\n"
        "         what to do: take a faster disk\n"
        "1 warning: training works here\n"
    )
    assert doctor.show([FINE, SLOW, BAD], as_json=False) == 1
    assert capsys.readouterr().out.endswith(
        "1 problem and 1 warning: training fails here until the problem is solved\n"
    )
    assert doctor.show([FINE], as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["name"] == "cores"


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Finding:
        raise RuntimeError("broken")

    monkeypatch.setattr(doctor, "CHECKS", {"cores": fail, "runs": lambda: SLOW})
    first, second = doctor.examine(quick=True)
    assert (first.level, first.name, second) == ("problem", "cores", SLOW)
    assert "broken" in first.what
    assert "report" in first.advice


def test_a_check_without_torch_points_at_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(doctor, "CHECKS", {"processor": machine.cpu})
    (found,) = doctor.examine(quick=True)
    assert found.level == "problem"
    assert "pip install" in found.advice


def test_quick_leaves_out_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {})
    monkeypatch.setattr(selftest, "digests", lambda: FINE)
    assert list(doctor.examine(quick=True)) == []
    assert list(doctor.examine(quick=False)) == [FINE]


def test_digests_that_differ_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "train", lambda workers, directory: f"{workers}" * 64)
    found = selftest.digests()
    assert found.level == "problem"
    assert "suspect memory or processor" in found.advice


def test_a_training_that_fails_is_a_problem_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "TRAIN", ("train", "no-such-recipe"))
    found = selftest.digests()
    assert found.level == "problem"
    assert "unknown recipe 'no-such-recipe'" in found.what


def test_a_loopback_that_does_not_work_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert network.loopback().level == "ok"
    monkeypatch.setattr(network, "interfaces", lambda: ["eth0"])
    assert network.loopback().level == "problem"

    def refuse(*arguments: object, **options: object) -> socket.socket:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)
    found = network.loopback()
    assert (found.level, bool(found.advice)) == ("problem", True)
    assert "unreachable" in found.what


def test_the_interface_towards_other_machines_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "own_address", lambda: "127.0.0.1")
    assert network.others().what.startswith(f"{LOOPBACK_INTERFACE}, 127.0.0.1")
    monkeypatch.setattr(network, "own_address", lambda: None)
    assert network.others().level == "ok"
