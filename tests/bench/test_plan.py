"""Measurements one by one: what is done is not done again, peers may fail, and time may run out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.ledger import Ledger
from bench.plan import FAILED, OURS, Measurement, carry_out, is_there, seconds_left

HERE = {"commit": "abc", "torch": "2"}


def measurement(key: str, run: Callable[[Path], Any], who: str = "DDP", needs: str | None = None) -> Measurement:
    return Measurement(key, who, 10.0, run, needs)


def go(plan: list[Measurement], ledger: Ledger, where: Path, limit: float = 3600.0) -> list[str]:
    said: list[str] = []
    carry_out(plan, plan, ledger, limit, where, said.append)
    return said


def test_what_was_measured_before_an_interruption_is_not_measured_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def note(name: str, fails: bool = False) -> Callable[[Path], float]:
        def run(directory: Path) -> float:
            calls.append(name)
            if fails:
                raise KeyboardInterrupt
            return 1.5

        return run

    path = tmp_path / "session.json"
    with pytest.raises(KeyboardInterrupt):
        go([measurement("a", note("a")), measurement("b", note("b", fails=True))], Ledger(path, HERE), tmp_path)
    again = Ledger(path, HERE)
    said = go([measurement("a", note("a")), measurement("b", note("b"))], again, tmp_path)
    assert calls == ["a", "b", "b"]
    assert again.entries == {"a": 1.5, "b": 1.5}
    assert said == ["b: 1.5; 2 of 2, about 0 min left"]
    again.close()
    assert not Ledger(path, HERE).entries, "the next session begins anew"


def test_another_commit_or_machine_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    Ledger(path, HERE).add("a", 1.0, 5.0)
    other = Ledger(path, HERE | {"commit": "def"})
    assert (other.entries, other.dropped) == ({}, ["commit"])
    assert Ledger(path, HERE).entries == {"a": 1.0}
    path.write_text('{"identity": ')
    assert Ledger(path, HERE).dropped == ["a file that cannot be read"]


def test_a_peer_that_fails_is_a_reason_and_lockstep_that_fails_is_an_error(tmp_path: Path) -> None:
    def fail(directory: Path) -> float:
        raise RuntimeError("exit code 1: torchrun\nTraceback")

    ledger = Ledger(tmp_path / "session.json", HERE)
    go([measurement("a", fail)], ledger, tmp_path)
    assert ledger.entries == {"a": {FAILED: "it failed: exit code 1: torchrun"}}
    with pytest.raises(RuntimeError):
        go([measurement("b", fail, who=OURS)], ledger, tmp_path)
    assert "b" not in ledger


def test_what_is_not_installed_and_what_there_is_no_time_for_is_not_tried(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "session.json", HERE)
    never: Callable[[Path], Any] = lambda directory: pytest.fail("it was tried")  # noqa: E731
    go([measurement("a", never, needs="no_such_module.inner")], ledger, tmp_path)
    assert ledger.entries["a"][FAILED].startswith("no_such_module.inner is not installed: pip install")
    ledger.add("b", 1.0, 61 * 60)
    go([measurement("c", never)], ledger, tmp_path)
    assert ledger.entries["c"] == {FAILED: "the 60 minutes were over before"}
    assert is_there("json.decoder")


def test_the_time_left_follows_how_slow_the_machine_is(tmp_path: Path) -> None:
    plan = [measurement(key, lambda directory: 1.0) for key in "abcd"]
    ledger = Ledger(tmp_path / "session.json", HERE)
    assert seconds_left(plan, ledger) == 40.0
    ledger.add("a", 1.0, 30.0)
    assert seconds_left(plan, ledger) == 90.0
    ledger.add("b", {FAILED: "it is not installed"}, 0.0)
    assert seconds_left(plan, ledger) == 60.0, "what was not tried says nothing about the speed"
