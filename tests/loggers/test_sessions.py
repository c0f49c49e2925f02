"""Every logger in one training that was cut and resumed: what each has is what metrics.jsonl has."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from lockstep import metrics
from lockstep.config import Job
from lockstep.configfile import from_plain
from lockstep.loggers.csv import COLUMNS
from tests.conftest import digest_in, run

SHORT = [
    *["demo", "--leaves", "4", "--batch-size", "16", "--set", "log_every=1", "--set", "evaluation.max_leaves=1"],
    *["--set", "evaluation.every_steps=3", "--set", "schedule.name=constant", "--set", "schedule.warmup=0"],
]
CUT, STEPS = 4, 8
"""The first session does 6 steps, and its last checkpoint is lost: the second begins after step 4."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sessions, with two workers, told to every logger; nobody is asked for an account."""
    root = tmp_path_factory.mktemp("loggers")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
            patch.delenv(name)
        train_and_resume(root)
    return root / "runs/run"


def train_and_resume(root: Path) -> None:
    loggers = ["--logger", "csv", "--logger", "wandb", "--logger", "mlflow", "--set", f"checkpoints.every_steps={CUT}"]
    first = run("train", *SHORT, *loggers, "--steps", "6", "--workers", "2", "--run", "run", cwd=root)
    digest_in(first)
    assert "warning" not in first.stderr
    shutil.rmtree(root / "runs/run/checkpoints/step-000000006")
    second = run("resume", "run", "--steps", str(STEPS), cwd=root)
    (root / "runs/run/printed").write_text(digest_in(second))
    assert f"from step {CUT}" in second.stderr
    assert "warning" not in second.stderr


def figures(trained: Path, kind: str) -> list[metrics.Row]:
    return [row for row in metrics.read(trained / "metrics.jsonl") if row["kind"] == kind]


def test_resume_keeps_the_loggers(trained: Path) -> None:
    job = from_plain(json.loads((trained / "config.json").read_text()), "here")[1]
    assert job.loggers == ("csv", "wandb", "mlflow")
    assert [row["step"] for row in figures(trained, "train")] == list(range(1, STEPS + 1))


def test_tensorboard_shows_figures_images_and_histograms(trained: Path) -> None:
    """F71 F73: every tag, each step once and in order after a resume, the values of metrics.jsonl; a session has one
    file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained), size_guidance={"images": 0, "histograms": 0})
    events.Reload()
    scalars = {
        **{f"train/{key}": ("train", key) for key in ("loss", "lr", "top1", "top5")},
        **{f"eval/{key}": ("eval", key) for key in ("loss", "top1", "top5", "best_top1")},
        **{f"speed/{key}": ("train", key) for key in ("images_per_second", "steps_per_second")},
    }
    assert len(list(trained.glob("events.out.tfevents.*"))) == 2
    assert set(events.Tags()["scalars"]) == set(scalars)
    for tag, (kind, key) in scalars.items():
        shown = [(event.step, event.value) for event in events.Scalars(tag)]
        assert shown == [(row["step"], pytest.approx(row[key])) for row in figures(trained, kind)]
    check_image(events)
    check_histograms(events, trained)


def check_image(events: Any) -> None:
    (image,) = events.Images("train/samples")
    assert (image.step, image.width, image.height) == (0, 64, 64)  # 4 images of the first leaf
    assert image.encoded_image_string.startswith(b"\x89PNG")


def check_histograms(events: Any, trained: Path) -> None:
    """One per tensor after every evaluation; nothing is lost or counted twice."""
    weights = load_file(trained / "checkpoints" / f"step-{STEPS:09d}" / "model.safetensors")
    tags = events.Tags()["histograms"]
    names = {tag.removeprefix("weights/") for tag in tags if tag.startswith("weights/")}
    assert names <= set(weights)
    assert names == {tag.removeprefix("gradients/") for tag in tags if tag.startswith("gradients/")}
    for tag in tags:
        shown = events.Histograms(tag)
        assert [event.step for event in shown] == [3, 6, 8]
        for event in shown:
            assert sum(event.histogram_value.bucket) == weights[tag.partition("/")[2]].size
            assert len(event.histogram_value.bucket) <= 30
    for name in names:
        last = events.Histograms(f"weights/{name}")[-1].histogram_value
        assert (last.min, last.max) == (float(weights[name].min()), float(weights[name].max()))
        assert last.sum == pytest.approx(float(weights[name].sum(dtype="float64")))
    assert any(events.Histograms(f"gradients/{name}")[0].histogram_value.max > 0 for name in names)


def test_csv_has_the_rows_of_metrics(trained: Path) -> None:
    """F74: steps/s, images/s, loss, precision and learning rate of every step; a resume leaves each row once."""
    with (trained / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    rows = [row for row in metrics.read(trained / "metrics.jsonl") if row["kind"] in ("train", "eval")]
    assert table == [{key: str(row.get(key, "")) for key in COLUMNS} for row in rows]
    assert all(row["steps_per_second"] and row["lr"] for row in table if row["kind"] == "train")


def wandb_records(directory: Path) -> Iterator[Any]:
    """What an offline session has stored, in order: protobufs in the format of LevelDB's log, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = directory.glob("*.wandb")
    data, at, record = path.read_bytes(), 7, b""
    while at < len(data):
        if (room := -at % 32768) and room < 7:
            at += room  # no header fits at the end of a block
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(record)
            record = b""


def wandb_rows(records: list[Any]) -> list[dict[str, Any]]:
    found = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    return [{".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item} for row in found]


def test_wandb_has_both_sessions_offline_under_one_id(trained: Path) -> None:
    """Steps that were done again are there again, with the same loss."""
    id_ = json.loads((trained / "loggers.json").read_text())["wandb"]
    sessions = [list(wandb_records(path)) for path in sorted((trained / "wandb").glob("offline-run-*"))]
    assert len(sessions) == 2
    by_step = {row["step"]: row for row in figures(trained, "train")}
    for records, steps in zip(sessions, ([1, 2, 3, 4, 5, 6], [5, 6, 7, 8]), strict=True):
        started = next(record.run for record in records if record.WhichOneof("record_type") == "run")
        assert started.run_id == id_
        config = {item.key: json.loads(item.value_json) for item in started.config.update}
        assert config["model"]["name"] == "small"
        rows = [row for row in wandb_rows(records) if "train/loss" in row]
        assert [row["step"] for row in rows] == steps
        assert [row["train/loss"] for row in rows] == [by_step[step]["loss"] for step in steps]
    last = wandb_rows(sessions[1])
    evaluated = [(row["step"], row["eval/best_top1"]) for row in last if "eval/best_top1" in row]
    assert evaluated == [(row["step"], row["best_top1"]) for row in figures(trained, "eval")[1:]]
    assert any(row.get("train/samples._type") == "image-file" for row in wandb_rows(sessions[0]))
    assert any(row.get("weights/0.weight._type") == "histogram" for row in last)


def test_mlflow_has_both_sessions_in_one_run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store inside the run directory, with the recipe as parameters."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient((trained / "mlruns").as_uri())
    (stored,) = client.search_runs([client.get_experiment_by_name("lockstep").experiment_id])
    assert stored.info.run_id == json.loads((trained / "loggers.json").read_text())["mlflow"]
    assert (stored.info.status, stored.info.run_name) == ("FINISHED", "run")
    assert stored.data.params["schedule.name"] == "constant"
    by_step = {row["step"]: row for row in figures(trained, "train")}
    told = [(one.step, one.value) for one in client.get_metric_history(stored.info.run_id, "train/loss")]
    steps = [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    assert told == [(step, by_step[step]["loss"]) for step in steps]
    assert math.isclose(stored.data.metrics["eval/best_top1"], figures(trained, "eval")[-1]["best_top1"])
    assert [one.path for one in client.list_artifacts(stored.info.run_id, "train")] == ["train/samples-step-0.png"]
    assert len(client.list_artifacts(stored.info.run_id, "histograms")) == 3


def test_a_configuration_without_loggers_still_loads() -> None:
    """As written before there were any."""
    plain = {"version": 1, "recipe": {"name": "x", "steps": 1}, "job": {"workers": 1, "tensorboard": False}}
    assert from_plain(plain, "here")[1] == Job(workers=1, tensorboard=False)


def test_a_logger_that_cannot_write_ends_no_training(trained: Path, tmp_path: Path) -> None:
    """One warning; and without a cut, without TensorBoard and without pictures the bits are the same."""
    (tmp_path / "runs/run/metrics.csv").mkdir(parents=True)
    arguments = ["--logger", "csv", "--no-tensorboard", "--steps", str(STEPS), "--workers", "1", "--run", "run"]
    result = run("train", *SHORT, *arguments, cwd=tmp_path)
    assert digest_in(result) == (trained / "printed").read_text()
    assert result.stderr.count("warning") == 1
    assert "the logger csv cannot be opened" in result.stderr
    assert not list((tmp_path / "runs/run").glob("events.*"))
