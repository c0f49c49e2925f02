"""`--profile`: a table of where time goes, and a trace that Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep import api
from lockstep.errors import UserError
from lockstep.request import Request
from lockstep.tracefile import TraceFile
from tests.conftest import RECIPE, Command, digest_in, run


def test_a_profile_shows_every_worker_and_changes_no_bits(
    lockstep: Command, workspace: Path, undisturbed: tuple[str, list[float]]
) -> None:
    result = lockstep("train", *RECIPE, "--workers", "2", "--run", "run", "--profile")
    assert digest_in(result) == undisturbed[0]
    lines = result.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["worker", "seconds"])
    names = lines[head].split()[2:]
    assert {"data", "forward", "backward", "exchange", "optimizer"} <= set(names)
    for worker, line in enumerate(lines[head + 1 : head + 3]):
        number, seconds, *shares = line.split()
        assert (number, float(seconds) > 0) == (str(worker), True)
        assert abs(sum(float(share.rstrip("%")) for share in shares) - 100) < 1
    assert "runs/run/trace.json" in result.stdout
    events = json.loads(Path("runs/run/trace.json").read_text())
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 1}
    for worker in (0, 1):
        forward = [event for event in spans if (event["pid"], event["name"]) == (worker, "forward")]
        assert len(forward) == 24 * 2, "two leaves in each of 24 steps"
        assert all(event["dur"] > 0 for event in forward)
        starts = [event["ts"] for event in forward]
        assert starts == sorted(starts)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"worker 0", "worker 1"}


def test_a_resumed_session_has_a_trace_of_its_own(lockstep: Command, workspace: Path) -> None:
    lockstep("train", *RECIPE, "--workers", "1", "--run", "run", "--profile", "--stop-at", "8")
    lockstep("resume", "run", "--profile", "--stop-at", "16")
    assert {path.name for path in Path("runs/run").glob("trace*")} == {"trace.json", "trace-8.json"}
    later = json.loads(Path("runs/run/trace-8.json").read_text())
    assert len([event for event in later if event["name"] == "optimizer"]) == 8
    lockstep("resume", "run", "--stop-at", "20")
    assert len(list(Path("runs/run").glob("trace*"))) == 2, "nobody asked for a profile"


def test_an_evaluation_has_no_profile_and_leaves_the_trace_of_the_run_alone(lockstep: Command, workspace: Path) -> None:
    lockstep("train", *RECIPE, "--workers", "1", "--run", "run", "--stop-at", "1")
    refused = run("evaluate", "run", "--profile")
    assert (refused.returncode, refused.stdout) == (2, "")
    with pytest.raises(UserError, match="an evaluation does no step"):
        api.evaluate_run("run", Request(profile=True))
    assert not list(Path("runs/run").glob("trace*"))


def test_a_trace_without_events_is_json(tmp_path: Path) -> None:
    TraceFile(tmp_path / "trace.json").close()
    assert json.loads((tmp_path / "trace.json").read_text()) == []
