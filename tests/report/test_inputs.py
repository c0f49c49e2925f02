"""Runs on other data, or with own code that was edited meanwhile: `diff` says so, and `compare` keeps them apart."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep import metrics
from tests.conftest import run
from tests.data import files

NET = """
from torch import nn
def net(num_classes, image_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes, bias={bias}))
"""
TRAIN = [
    *["train", "demo", "--set", "data.source=cifar10", "--leaves", "2", "--batch-size", "8", "--steps", "4"],
    *["--set", "checkpoints.every_steps=2", "--set", "evaluation.leaf_batch=10", "--set", "log_every=1"],
]


def write_data(directory: Path, seed: int) -> None:
    directory.mkdir()
    records = files.cifar10(40, seed)
    records[:30].tofile(directory / "data_batch_1.bin")
    records[30:].tofile(directory / "test_batch.bin")


def train(root: Path, name: str, data: str, *options: str) -> None:
    arguments = [*TRAIN, "--data", data, "--model", "net.py:net", "--workers", "1", "--run", name, *options]
    result = run(*arguments, cwd=root)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("given")
    for number, name in enumerate(("d1", "d2")):
        write_data(root / name, number)
    shutil.copytree(root / "d1", root / "copy")
    (root / "net.py").write_text(NET.format(bias=True))
    train(root, "first", "d1")
    train(root, "moved", "copy", "--seed", "1")
    train(root, "data", "d2", "--seed", "2")
    train(root, "half", "d1", "--stop-at", "2")
    (root / "net.py").write_text(NET.format(bias=False))
    train(root, "code", "d1", "--seed", "3")
    (root / "net.py").write_text(NET.format(bias=True) + "# changes no bits\n")
    assert run("resume", "half", cwd=root).returncode == 0
    return root


@pytest.fixture
def here(trained: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(trained)
    yield trained
    os.chdir(before)


def causes(first: str, second: str) -> list[str]:
    found = json.loads(run("diff", first, second, "--recorded", "--json").stdout)
    return [cause["what"] for cause in found["causes"]]


def test_other_data_of_the_same_size_are_what_differs(here: Path) -> None:
    assert causes("first", "data") == ["recipe seed", "the data"]
    assert causes("first", "moved") == ["recipe seed"], "wherever they lie"


def test_code_that_was_edited_is_what_differs(here: Path) -> None:
    assert causes("first", "code") == ["recipe seed", "the code of net.py:net"]
    text = run("diff", "first", "code", "--recorded").stdout
    assert "bug in Lockstep" not in text


def test_code_that_was_edited_before_a_resume_is_recorded_with_its_step(here: Path) -> None:
    assert causes("first", "half") == ["the code of net.py:net"]
    given = json.loads(Path("runs/half/environment.json").read_text())["inputs"]
    assert [entry["step"] for entry in given] == [0, 2]
    assert given[0]["data"] == given[1]["data"]


def falsified(name: str) -> str:
    """The first run, as if it had computed something else."""
    shutil.copytree("runs/first", f"runs/{name}")
    path = Path("runs") / name / "metrics.jsonl"
    rows = [row | ({"digest": "0" * 64} if "digest" in row else {}) for row in metrics.read(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def test_if_all_is_the_same_only_what_the_code_imports_can_have_changed(here: Path) -> None:
    verdict = run("diff", "first", falsified("wrong"), "--recorded").stdout.splitlines()[-1]
    assert verdict.startswith("Nothing that the bits depend on differs, as far as it is recorded: if what net.py:net ")
    assert "this is a bug in Lockstep" in verdict


def test_older_runs_are_not_accused(here: Path) -> None:
    path = Path("runs") / falsified("older") / "environment.json"
    document = json.loads(path.read_text())
    del document["inputs"]
    path.write_text(json.dumps(document))
    verdict = run("diff", "first", "older", "--recorded").stdout.splitlines()[-1]
    assert verdict.startswith(
        "Nothing that both runs have recorded differs, but they have not recorded the data and the code of net.py:net: "
        "if that is the same in both, this is a bug"
    )
    found = json.loads(run("diff", "first", "older", "--recorded", "--json").stdout)
    assert (found["causes"], found["unrecorded"]) == ([], ["the data", "the code of net.py:net"])
    assert run("compare", "first", "older").returncode == 0


def test_only_runs_on_the_same_data_with_the_same_code_share_a_row(here: Path) -> None:
    _, *rows = run("compare", "first", "moved", "data", "code").stdout.splitlines()
    assert [row.split("  ")[0].strip() for row in rows] == ["first, moved", "data", "code"]


def test_a_finished_run_that_is_resumed_keeps_what_it_was_given(here: Path) -> None:
    before = Path("runs/first/environment.json").read_text()
    assert run("resume", "first").returncode == 0, "net.py is not what it was, but nothing is computed from it"
    assert Path("runs/first/environment.json").read_text() == before
