"""`make bench` from its start to RESULTS.md, with measurements that cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import suite
from bench.plan import OURS, Comparison, Measurement
from bench.ratio import Target
from bench.results import Figure, Result
from bench.sidebyside import LOADING


class Fake:
    """A comparison of three rounds, of which the last one is interrupted the first time."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_interrupted = True

    def plan(self, quick: bool) -> list[Measurement]:
        return [Measurement(f"round {number}", OURS, 1.0, self._run(number)) for number in range(3)]

    def _run(self, number: int) -> Any:
        def run(directory: Path) -> float:
            self.calls.append(f"round {number}")
            if number == 2 and self.is_interrupted:
                raise KeyboardInterrupt
            return 100.0 + number

        return run

    def conclude(self, entries: Mapping[str, Any], quick: bool) -> Result:
        samples = [float(value) for value in entries.values()]
        ratio = Figure("loading: a / b", "ratio", [1.0] * 6, Target.not_behind())
        return Result("peers-loading", "How fast?", [ratio], cells=[(OURS, LOADING, samples, "")])


def test_interrupted_it_goes_on_and_then_writes_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake()
    comparison = Comparison("peers-loading", fake.plan, fake.conclude)
    monkeypatch.setattr(suite, "COMPARISONS", {"peers-loading": comparison})
    monkeypatch.setattr(command, "OUT", tmp_path / "out")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench"])
    (tmp_path / "bench").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- side by side -->\n| old |\n<!-- end of side by side -->\nafter\n")
    assert command.main() == 130
    assert "| old |" in readme.read_text()
    assert not (tmp_path / "bench" / "RESULTS.md").exists()
    fake.is_interrupted = False
    assert command.main() == 0
    assert fake.calls == ["round 0", "round 1", "round 2", "round 2"]
    assert "going on with 2 measurements of an earlier session; --fresh begins anew" in capsys.readouterr().out
    page = (tmp_path / "bench" / "RESULTS.md").read_text()
    assert "| Lockstep | not measured (1) |" in page
    assert "101.0 (too few rounds) |" in page
    assert "| loading: a / b | 1.000 | 1.000 to 1.000 | ≥ 0.92 | met |" in page
    assert "## peers-loading" in page
    shown = readme.read_text()
    assert shown.startswith("before\n<!-- side by side -->\n|  | images/s of one process |")
    assert shown.endswith("\n<!-- end of side by side -->\nafter\n")
    assert "101.0 (too few rounds) |" in shown
    assert "| old |" not in shown
    assert (tmp_path / "bench" / "peers.png").stat().st_size < 150_000
    assert (tmp_path / "out" / "peers-loading.json").exists()
    assert command.main() == 0, "what is over begins anew"
    assert len(fake.calls) == 7
