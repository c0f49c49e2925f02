"""What a run records: metrics.jsonl, TensorBoard, spans; by one worker, in a format that survives a torn line."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import metrics, wire
from lockstep.config import Evaluation
from lockstep.metrics import MetricsFile
from lockstep.spans import NAMES, Spans
from lockstep.supervisor.run import Supervisor
from tests.alone import tiny_recipe
from tests.conftest import Command, digest_in
from tests.test_resume import TINY, rows_of


@pytest.fixture
def trained(lockstep: Command) -> Path:
    arguments = ["--steps", "100", "--leaves", "4", "--workers", "3", "--set", "log_every=10"]
    result = lockstep("train", *TINY, *arguments, "--set", "evaluation.every_steps=50", "--run", "run")
    (Path("runs/run") / "printed").write_text(digest_in(result))
    return Path("runs/run")


def test_a_run_with_three_workers_is_recorded_once_and_completely(trained: Path) -> None:
    """F74: one row every 10 steps with all figures; spans of all workers at the end."""
    rows = rows_of("run", "train")
    assert [row["step"] for row in rows] == list(range(10, 101, 10))
    for row in rows:
        assert {"loss", "top1", "lr", "steps_per_second", "images_per_second", "spans"} <= set(row)
        assert row["images_per_second"] == pytest.approx(16 * row["steps_per_second"])
        assert {"data", "forward", "backward", "exchange", "optimizer"} <= set(row["spans"])
    check_speed(rows)
    assert rows[-1]["digest"] == (trained / "printed").read_text()
    totals = {row["worker"]: row["seconds"] for row in rows_of("run", "spans")}
    assert sorted(totals) == [0, 1, 2]
    for span in ("data", "forward", "backward", "exchange", "optimizer", "evaluate"):
        assert all(seconds[span] > 0 for seconds in totals.values())
    assert totals[0]["checkpoint"] > 0  # the last one is written after the last row
    assert [row["step"] for row in rows_of("run", "eval")] == [50, 100]
    start = rows_of("run", "start")[0]
    assert start["version"] == 1
    assert rows_of("run", "end")[0]["state"] == "finished"

    check_tensorboard(trained)
    check_files(trained)


def check_speed(rows: list[dict[str, Any]]) -> None:
    """Steps per second are those of the clock, here of the rows between which nothing is evaluated; others may use the
    machine as well."""
    parts = (rows[0:4], rows[5:9])
    by_clock = sum(part[-1]["time"] - part[0]["time"] for part in parts)
    by_rows = sum(10 / row["steps_per_second"] for part in parts for row in part[1:])
    assert by_rows / 3 < by_clock < 3 * by_rows


def check_tensorboard(trained: Path) -> None:
    """The tags, steps and values that TensorBoard itself reads are those of metrics.jsonl."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained))
    events.Reload()
    tags = {"train/loss", "train/lr", "eval/top1", "eval/best_top1", "speed/images_per_second"}
    assert tags <= set(events.Tags()["scalars"])
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert losses == [(row["step"], pytest.approx(row["loss"])) for row in rows_of("run", "train")]
    assert [event.step for event in events.Scalars("eval/top1")] == [50, 100]


def check_files(trained: Path) -> None:
    """Every JSON file has a version; the supervisor's address and token are gone with it."""
    for name in ("config.json", "environment.json", "best.json", "checkpoints.json"):
        assert json.loads((trained / name).read_text())["version"] == 1
    environment = json.loads((trained / "environment.json").read_text())
    assert {"torch", "numpy", "processor", "threads", "cpu_capability"} <= set(environment)
    assert not (trained / "supervisor.json").exists()
    assert sorted(path.name for path in (trained / "logs").iterdir()) == [f"worker-{i}.log" for i in range(3)]


def test_only_one_worker_sends_figures(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F73: of three that finish; there is one file of events."""
    heard: list[tuple[str, int]] = []
    hear = Supervisor._hear

    def listen(self: Supervisor, worker: int, message: wire.Message) -> None:
        heard.append((message["type"], worker))
        hear(self, worker, message)

    monkeypatch.setattr(Supervisor, "_hear", listen)
    recipe = tiny_recipe(log_every=1, evaluation=Evaluation(leaf_batch=50, max_leaves=1))
    lockstep.train(recipe, workers=3, data="shapes", run="run", progress=False)
    senders = [worker for kind, worker in heard if kind == "metrics"]
    assert senders == 3 * senders[:1]
    assert {worker for kind, worker in heard if kind == "finished"} == {0, 1, 2}
    assert len(list(Path("runs/run").glob("events.out.tfevents.*"))) == 1


def test_rows_of_steps_that_are_done_again_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path, 0)
    for step in (1, 2, 3):
        first.write({"kind": "train", "step": step, "session": 1})
    first.close()
    with path.open("a") as file:
        file.write('{"kind": "train", "step": 4, "sess')  # killed in the middle of a write
    second = MetricsFile(path, 2)
    second.write({"kind": "train", "step": 3, "session": 2})
    second.close()
    rows = [(row["step"], row["session"]) for row in metrics.read(path) if row["kind"] == "train"]
    assert rows == [(1, 1), (2, 1), (3, 2)]
    assert metrics.read(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "checkpoint"}',
        '{"kind": "checkpoint", "step": 1, "time": 2.0, "digest": null}',
        '{"kind": "eval"}',
        '{"kind": "eval", "step": "1", "time": 2.0}',
        '{"kind": "eval", "step": 1, "time": 2.0, "top1": "high"}',
        '{"kind": "eval", "step": 1, "time": 2.0, "best_top1": {}}',
        '{"kind": "eval", "step": 1, "time": 2.0, "metric": "error", "error": []}',
        '{"kind": "train", "step": null, "time": 2.0}',
        '{"kind": "train", "step": 1, "time": 1e999}',
        '{"kind": "start"}',
        '{"kind": "rollback"}',
        '{"kind": "end"}',
        '{"kind": "recovery"}',
        '{"kind": "spans", "worker": 0, "seconds": 1}',
        '{"kind": "death", "step": 1, "time": 2.0}',
        '{"kind": "generation", "step": 1, "time": 2.0, "joined": 1}',
        '{"kind": "broken"}',
        '{"step": 1}',
        '{"kind": {}}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_line_that_lacks_what_a_row_of_its_kind_has_is_passed_over(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path, 0) as file:
        file.write({"kind": "train", "step": 1, "loss": math.nan, "spans": {"data": 1.0}})
        file.write({"kind": "end", "state": "finished", "digest": None})
    before = metrics.read(path)
    assert [row["kind"] for row in before] == ["start", "train", "end"]
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    assert str(metrics.read(path)) == str(before)


def test_a_figure_that_is_no_number_is_one_that_any_reader_of_json_takes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path, 0) as file:
        file.write({"kind": "train", "step": 1, "loss": math.inf, "spans": {"data": math.nan}})
        file.write({"kind": "corruption", "step": 1, "worker": None})
    assert not re.search("NaN|Infinity", path.read_text())
    _, train, corruption = metrics.read(path)
    assert math.isnan(train["loss"])
    assert corruption["worker"] is None
    assert metrics.scalars(train).keys() == {"train/loss"}


def test_spans_add_up_and_start_anew() -> None:
    spans = Spans()
    for _ in range(3):
        with spans("forward"):
            assert spans.current == "forward"
    assert spans.current == "between"
    taken = spans.take()
    assert set(taken) == set(NAMES)
    assert taken["forward"] > 0
    assert spans.take()["forward"] == 0


def test_the_token_is_for_the_user_alone(tmp_path: Path) -> None:
    from lockstep.rundirectory import RunDirectory

    os.umask(0o022)
    RunDirectory(tmp_path).write_json("supervisor.json", {"version": 1}, mode=0o600)
    assert stat.S_IMODE((tmp_path / "supervisor.json").stat().st_mode) == 0o600
