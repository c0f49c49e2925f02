"""Runs on data, with a loss and a metric of the user's own: one digest, and every command copes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lockstep import api, checkpoint, cli, export, metrics, trained
from lockstep.errors import UserError
from lockstep.progress import Silent
from lockstep.request import Request
from lockstep.result import Run
from tests.conftest import REPOSITORY, Command, digest_in, run
from tests.data.test_own import DRAWING
from tests.test_bad_input import refused

LINE = [f"{REPOSITORY}/examples/linear_regression.py:recipe", "--set", "evaluation.every_steps=100"]


def rows_of(place: Path, kind: str) -> list[dict[str, Any]]:
    rows = [row for row in metrics.read(place / "metrics.jsonl") if row["kind"] == kind]
    return [{key: value for key, value in row.items() if key != "time"} for row in rows]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linear regression with one worker, and with two."""
    place = tmp_path_factory.mktemp("line")
    for workers in ("1", "2"):
        digest_in(run("train", *LINE, "--workers", workers, "--run", f"line-{workers}", "--logger", "csv", cwd=place))
    return place


@pytest.fixture
def here(line: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(line)
    return line


def test_the_linear_regression_finds_its_line_whatever_the_number_of_workers(here: Path) -> None:
    """F32: y = 0.1 x + 0.3 in 201 steps, with one digest."""
    found = [checkpoint.newest_good(here / f"runs/line-{workers}/checkpoints")[0] for workers in (1, 2)]
    assert found[0] is not None
    assert found[1] is not None
    assert (found[0].step, found[0].digest) == (201, found[1].digest)
    weights = load_file(found[0].path / "model.safetensors")
    assert weights["weight"].item() == pytest.approx(0.1, abs=1e-3)
    assert weights["bias"].item() == pytest.approx(0.3, abs=1e-3)
    assert rows_of(here / "runs/line-1", "eval") == rows_of(here / "runs/line-2", "eval")


def test_rows_tables_and_loggers_have_the_metric_and_no_top1(here: Path) -> None:
    last = rows_of(here / "runs/line-1", "eval")[-1]
    own = {"absolute_error", "metric", "best_absolute_error"}
    assert set(last) == {"kind", "step", "examples", "loss", "counted", *own}
    assert (last["examples"], last["counted"], last["metric"]) == (100, "samples", "absolute_error")
    assert 0 <= last["best_absolute_error"] <= last["absolute_error"] < 1e-3
    row = rows_of(here / "runs/line-1", "train")[0]
    assert row["absolute_error"] > 0.01
    assert not {"top1", "top5"} & set(row)
    events = EventAccumulator(str(here / "runs/line-1")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/absolute_error", "eval/absolute_error", "eval/best_absolute_error", "train/loss"} <= tags
    assert not any("top" in tag for tag in tags)
    table = list(csv.DictReader((here / "runs/line-1/metrics.csv").open()))
    assert float(table[-1]["best_absolute_error"]) == last["best_absolute_error"]
    best = json.loads((here / "runs/line-1/best.json").read_text())
    assert best["absolute_error"] == min(row["absolute_error"] for row in rows_of(here / "runs/line-1", "eval"))


def test_runs_and_compare_show_the_metric(here: Path) -> None:
    listed = [json.loads(text) for text in run("runs", "--json").stdout.splitlines()]
    assert [(one["goal"], one["top1"], one["best_top1"]) for one in listed] == [("absolute_error", None, None)] * 2
    assert "absolute_error " in run("runs").stdout
    shown = run("compare", "line-1", "line-2", "--html", "page.html", "--png", "picture.png")
    assert shown.returncode == 0, shown.stderr
    assert "best absolute_error" in shown.stdout
    assert "best top1" not in shown.stdout
    assert "absolute_error in evaluation" in (here / "page.html").read_text()
    assert "line-1 is judged by its absolute_error" in refused(run("compare", "line-1", "--top1", "0.5"))


def test_evaluate_counts_every_example_and_has_no_confusion(here: Path) -> None:
    found = run("evaluate", "line-2", "--confusion")
    assert found.returncode == 0, found.stderr
    assert "absolute_error" in found.stdout
    assert "on 100 test samples" in found.stdout
    assert "there are no classes in these data" in found.stdout
    assert "no classes: use its model in Python" in refused(run("predict", "line-1", "nothing.png"))


def test_the_run_is_of_use_in_python_and_to_others(here: Path) -> None:
    found = Run(directory=here / "runs/line-1", name="line-1", state="finished", digest=None, evaluation=None)
    assert found.best_top1 is None
    assert found.best is not None
    assert set(found.best) == {"absolute_error", "step"}
    assert found.load_model()(torch.tensor([[10.0]])).item() == pytest.approx(1.3, abs=1e-2)
    exported = run("export", "line-1", "--to", "safetensors", "--out", "line.safetensors")
    assert exported.returncode == 0, exported.stderr
    assert set(load_file("line.safetensors")) == {"weight", "bias"}


def test_a_metric_below_which_none_was_survives_a_resume(here: Path) -> None:
    """Lower is better, also where the best comes from an earlier session."""
    best = here / "runs/line-2/best.json"
    best.write_text(json.dumps({"version": 1, "absolute_error": 1e-12, "step": 100}))
    resumed = run("resume", "line-2", "--steps", "210", "--workers", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert "best absolute_error 1e-12" in resumed.stdout
    assert json.loads(best.read_text())["step"] == 100


OWN = (
    DRAWING
    + """
from lockstep.config import Data, Evaluation, Model, Recipe

class Net(torch.nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.dropout, self.layer = torch.nn.Dropout(), torch.nn.Linear(input_shape[0], num_classes)
    def forward(self, inputs):
        return self.layer(self.dropout(inputs / 20))

def focal(outputs, targets):
    own = torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
    return ((1 - torch.exp(-own)) ** 2 * own).mean()

def recipe():
    return Recipe(
        name="own", data=Data(source="own.py:both"), model=Model(name="own.py:Net"), loss="own.py:focal",
        global_batch=16, leaves=4, steps=8, evaluation=Evaluation(every_steps=4, leaf_batch=6), log_every=1,
    )
"""
)


@pytest.mark.timeout(240)
def test_items_that_are_drawn_at_random_give_one_digest_for_every_number_of_workers_and_processes(
    lockstep: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills and a resume included. A loss of the user's own on classes keeps top1 and top5."""
    (workspace / "own.py").write_text(OWN)
    digest = digest_in(lockstep("train", "own.py:recipe", "--workers", "1", "--run", "one"))
    stopped = ["--workers", "4", "--stop-at", "4", "--run", "parts"]
    assert digest_in(lockstep("train", "own.py:recipe", *stopped)) != digest
    assert digest_in(lockstep("resume", "parts", "--workers", "2")) == digest
    monkeypatch.setenv("LOCKSTEP_INJECT", "kill worker=1 step=2 phase=backward")
    killed = ["--workers", "2", "--set", "data.processes=2", "--run", "killed"]
    result = lockstep("train", "own.py:recipe", *killed)
    assert digest_in(result) == digest
    assert "4 leaves of 4 samples, " in result.stderr
    assert " samples/s\n" in result.stderr
    assert "on 20 test samples" in result.stdout
    assert "1 worker died on the way" in result.stdout
    evaluations = [rows_of(workspace / "runs" / name, "eval") for name in ("one", "parts", "killed")]
    assert evaluations[0] == evaluations[1] == evaluations[2]
    assert {"top1", "top5", "loss", "best_top1"} <= set(evaluations[0][-1])
    assert evaluations[0][-1]["examples"] == 20


def test_what_an_item_raises_in_a_run_is_shown_with_its_number(
    lockstep: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "own.py").write_text(OWN.replace('os.environ.get("RAISES")', "self.size == 40"))
    result = lockstep("train", "own.py:recipe", "--workers", "1")
    assert result.returncode == 1
    assert "item 13 of the training set cannot be read" in result.stderr
    assert result.stderr.count("KeyError: 'no thirteen'") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "loss=cross-entropy"], "the targets are floats, and cross-entropy needs the numbers of classes"),
        (["--set", "loss=mse"], "unknown loss 'mse': known are cross-entropy, file.py:function, module:function"),
        (["--set", "metric=nowhere.py:f"], "there is no file"),
        (["--set", "label_smoothing=0.1"], "label_smoothing is a part of the built-in cross-entropy"),
        (["--set", "data.mixup=0.2"], "data.mixup is a part of the built-in cross-entropy"),
        (["--set", "data.crop_padding=2"], "data.crop_padding is for images in uint8, but the inputs are floats"),
        (["--set", "data.standardize=channel"], "data.standardize is for images in uint8"),
        (["--set", "evaluation.views=mirror"], "evaluation.views is for images in uint8"),
        (["--set", "data.processes=-1"], "data.processes must not be negative"),
        (["--model", "small"], "the model small takes images, but inputs have the shape (1,)"),
        (["--data", "."], "has no parameter `path`, which would get what --data says"),
        (["--data", "own.py:nobody"], "unknown name in"),
        (["--data", "own.py:stream"], "has no length and index: iterable data cannot"),
        (["--set", "metric=own.py:loss"], "rows of metrics have a figure 'loss' already"),
        (["--labels", "train.txt"], "--labels is for folders of images, and "),
        (["--eval-labels", "val.txt"], "--eval-labels is for folders of images, and "),
        (["--set", "data.side=32"], "linear_regression.py:points returned none: leave it out"),
        (["--set", "loss=own.py:alone"], "cannot be called with two arguments: a loss takes the outputs"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    workspace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    own = "def stream():\n    return iter([]), None\ndef loss(a, b):\n    return a\ndef alone(a):\n    return a\n"
    (workspace / "own.py").write_text(own)
    assert cli.main(["train", *LINE, *arguments]) == 2  # before any process starts
    shown = capsys.readouterr().err
    assert sentence in shown.splitlines()[-1]
    assert "Traceback" not in shown
    assert not list(workspace.glob("runs/*"))


@pytest.mark.parametrize(
    "text", ["def mine():\n    return deeper()\ndef deeper():\n    return {}['key']\n", "1 / 0\ndef mine(): ..."]
)
def test_what_a_function_of_data_raises_is_shown_from_that_code_on(workspace: Path, text: str) -> None:
    (workspace / "own.py").write_text(text)
    with pytest.raises(UserError) as caught:
        api.train("demo", Request(data="own.py:mine"))
    first, second, third, *rest = str(caught.value).splitlines()
    assert first.endswith("own.py:mine cannot be used, because of an error in this code:")
    assert second.startswith("Traceback")
    assert f'"{workspace}/own.py", line' in third
    assert rest[-1] in ("KeyError: 'key'", "ZeroDivisionError: division by zero")


FLOATS = """
import numpy as np

def floats():
    images = np.linspace(-1, 1, 60 * 3 * 16 * 16, dtype=np.float32).reshape(60, 3, 16, 16)
    labels = np.arange(60) % 10
    return (images[:40], labels[:40]), (images[40:], labels[40:])
"""
OF_IMAGES = """
base = "demo"
[data]
source = "own.py:floats"
crop_padding = 3
flip = false
policy = "trivial"
mixup = 0.2
sizes = [[1, 8]]
standardize = "channel"
mean = [1.0]
deviation = [1.0]
[evaluation]
views = "mirror"
"""
SHORT = ["--steps", "2", "--batch-size", "16", "--workers", "1", "--set", "evaluation.leaf_batch=10"]
OFF = ["crop_padding=0", "flip=false", "policy=none", "mixup=0", "sizes=[]", "standardize=none"]


def test_what_a_recipe_says_of_images_is_passed_over_where_there_are_floats(lockstep: Command, workspace: Path) -> None:
    """And to ask for none of it is no mistake: all of it is the same training."""
    (workspace / "own.py").write_text(FLOATS)
    (workspace / "images.toml").write_text(OF_IMAGES)
    off = [word for one in OFF for word in ("--set", f"data.{one}")]
    digests = {
        digest_in(lockstep("train", "demo", "--data", "own.py:floats", *SHORT)),
        digest_in(lockstep("train", "demo", "--data", "own.py:floats", *SHORT, *off, "--run", "off")),
        digest_in(lockstep("train", "images.toml", *SHORT, "--run", "images")),
        digest_in(lockstep("resume", "images")),
    }
    assert len(digests) == 1
    assert lockstep("evaluate", "images", "--workers", "1").returncode == 0
    assert json.loads(export.metadata(trained.load("images", None, Silent()))["image_shape"]) == [3, 16, 16]


@pytest.mark.parametrize("asked", ["data.crop_padding=4", "data.flip=true", "data.standardize=image"])
def test_what_is_for_images_is_refused_where_there_are_floats_if_it_is_asked_for(workspace: Path, asked: str) -> None:
    (workspace / "own.py").write_text(FLOATS)
    with pytest.raises(UserError, match=f"^{asked.partition('=')[0]} is for images in uint8, but the inputs are"):
        api.train("demo", Request(data="own.py:floats", settings=[asked]))
