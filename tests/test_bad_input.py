"""Bad input: one sentence that says what to do, exit code 2, no traceback, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.data.test_cifar import write
from tests.test_resume import TINY


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one sentence."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("lockstep: ")
    return last


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "resnet20-cifar1"], "did you mean 'resnet20-cifar10'"),
        (["train", "nowhere.py:recipe"], "there is no file nowhere.py"),
        (["train", "demo", "--set", "schedul.lr=1"], "did you mean 'schedule.lr'"),
        (["train", "demo", "--workers", "5"], "5 workers cannot share 4 leaves"),
        (["train", "demo", "--workers", "0"], "at least 1"),
        (["train", "demo", "--batch-size", "126"], "take a batch size of 128"),
        (["train", "demo", "--leaves", "3"], "power of two"),
        (["train", "resnet20-cifar10"], "--data"),
        (["train", "resnet20-cifar10", "--data", "nothing"], "there is no nothing: give the directory"),
        (
            ["train", "demo", "--data", "shaps"],
            "there is no shaps: did you mean 'shapes'? give the directory of the data with --data, or one of shapes",
        ),
        (["train", "demo", "--data", "."], "holds no data_batch_*.bin"),
        (["train", "demo", "--epochs", "inf"], "the number of epochs must be a finite number, not inf"),
        (["train", "demo", "--lr", "nan"], "the learning rate (--lr, schedule.lr) must be a finite number, not nan"),
        (["train", "demo", "--data", "mine.py"], "as mine.py:function"),
        (["train", "demo", "--data", __file__], f"as {__file__}:function"),
        (["train", "demo", "--set", "lr=2"], "did you mean 'schedule.lr'"),
        (["train", "demo", "--set", "model.name=mine.py:net"], "there is no file"),
        (["train", "mine.py"], "mine.py:my_recipe"),
        (["config", "demo", "--set", "data.source=cifar"], "did you mean 'cifar10'"),
        (["train", "demo", "--strategy", "alreduce"], "did you mean 'allreduce'"),
        (["train", "demo", "--engine", "lokal"], "did you mean 'local'"),
        (["train", "demo", "--resume"], "--run NAME"),
        (["train", "demo", "--device", "cuda"], "no visible GPU"),
        (["train", "demo", "--run", "/proc/nowhere"], "choose another place with --run"),
        (["train", "demo", "--run", ""], "the name of the run is empty"),
        (["train", "demo", "--run", ".."], "--run .. is no place of its own for a run"),
        (["train", "demo", "--set", "model.name=smal"], "did you mean 'small'"),
        (["train", "demo", "--set", "model.name=no_such.module:net"], "there is no module 'no_such'"),
        (["train", "demo", "--set", "model.width=wide"], "must be a whole number of at least 1, not 'wide'"),
        (["train", "resnet20-cifar10", "--set", "model.depth=21"], "the nearest are 20 and 26"),
        (["train", "demo", "--set", "data.source=shape"], "did you mean 'shapes'"),
        (["train", "demo", "--set", "data.source=mnist"], "known are cifar10, cifar100, file.py:function, imagenet"),
        (["train", "demo", "--model", "lenet"], "known are"),
        (["train", "demo", "--hold-out", "10000"], "has 10000 samples, so 10000 cannot be held out"),
        (["train", "demo", "--data", "*.bin"], "no file fits this pattern: give the directory"),
        (["train", "demo", "--epochs", "0"], "epochs must be positive"),
        (["train", "demo", "--scale", "1.01"], "take another --scale"),
        (["train", "demo", "--stop-at", "0"], "stop_at must be at least 1"),
        (
            ["train", "demo", "--set", "optimizer.name=adamm"],
            "unknown value of optimizer.name 'adamm': did you mean 'adamw'? known are adamw, muon, sgd",
        ),
        (["train", "demo", "--steps", "10", "--stop-at", "20"], "--stop-at 20 is beyond the end, since the whole"),
        (["train", "demo", "--patience", "-1"], "--patience takes a positive number of seconds, not -1"),
        (["train", "demo", "--patience", "nan"], "--patience takes a positive number of seconds, not nan"),
        (["resume", "last"], "there is no run"),
        (["evaluate", "nothing"], "there is no run runs/nothing: `lockstep runs` lists"),
        (["digest", "nothing"], "there is no run runs/nothing: `lockstep runs` lists"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_bad_arguments(lockstep: Command, workspace: Path, arguments: list[str], sentence: str) -> None:
    """F7 among others: unknown data sets and models are refused, with the known ones."""
    assert sentence in refused(lockstep(*arguments))
    assert not (workspace / "runs").exists()


def test_a_truncated_file_and_a_wrong_label_are_named(lockstep: Command, workspace: Path) -> None:
    write(workspace / "data")
    victim = workspace / "data/data_batch_3.bin"
    good = victim.read_bytes()
    victim.write_bytes(good[:-1])
    assert "data_batch_3.bin is truncated" in refused(lockstep("train", "resnet20-cifar10", "--data", "data"))
    victim.write_bytes(b"\x63" + good[1:])
    assert "record 0: label 99" in refused(lockstep("train", "resnet20-cifar10", "--data", "data"))


def test_an_existing_run_is_not_overwritten(lockstep: Command, workspace: Path) -> None:
    (workspace / "runs/mine").mkdir(parents=True)
    (workspace / "runs/mine/config.json").write_text("precious")
    assert "add --resume" in refused(lockstep("train", *TINY, "--run", "mine"))
    assert "config.json cannot be read" in refused(lockstep("resume", "mine"))
    assert (workspace / "runs/mine/config.json").read_text() == "precious"
    assert "did you mean 'mine'" in refused(lockstep("resume", "mien"))


def test_a_file_in_the_way_of_a_run(lockstep: Command, workspace: Path) -> None:
    (workspace / "runs").mkdir()
    (workspace / "runs/mine").write_text("precious")
    assert "is in the way" in refused(lockstep("train", *TINY, "--run", "mine"))
    assert (workspace / "runs/mine").read_text() == "precious"


def test_a_run_that_cannot_be_started_leaves_a_directory_as_it_was(lockstep: Command, workspace: Path) -> None:
    """Also files that are called as Lockstep's own are, and what lies in directories that it uses itself."""
    mine = {"plain/notes.txt", "full/notes.txt", "full/logs/old.log", "full/code/mine.py", "full/metrics.csv"}
    for name in mine:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("mine")
    before = set(workspace.rglob("*"))
    for place in ("./plain", "./full", "./new"):
        assert "this is none" in refused(lockstep("train", *TINY, "--run", place, "--engine", "slurm"))
    assert set(workspace.rglob("*")) == before
    assert {(workspace / name).read_text() for name in mine} == {"mine"}


def test_a_recipe_that_is_not_one(lockstep: Command, workspace: Path) -> None:
    (workspace / "mine.py").write_text("def recipe():\n    return 5\n")
    assert "returned int" in refused(lockstep("train", "mine.py:recipe"))
    assert "did you mean 'recipe'" in refused(lockstep("train", "mine.py:recipes"))


def test_a_checkpoint_of_another_model(lockstep: Command, workspace: Path) -> None:
    assert lockstep("train", *TINY, "--steps", "2", "--workers", "1", "--run", "run").returncode == 0
    path = workspace / "runs/run/config.json"
    config = json.loads(path.read_text())
    config["recipe"]["model"]["options"] = {"width": 8}
    path.write_text(json.dumps(config))
    sentence = refused(lockstep("resume", "run", "--steps", "4"))
    assert "is a checkpoint of another model" in sentence
    assert "shape" in sentence


def test_fewer_steps_than_done(lockstep: Command) -> None:
    assert lockstep("train", *TINY, "--steps", "3", "--workers", "1", "--run", "run").returncode == 0
    assert "has 3 steps already" in refused(lockstep("resume", "run", "--steps", "2"))


def test_a_disk_too_small_for_a_checkpoint_is_refused_before_the_first_step(
    lockstep: Command, small_disk: Path
) -> None:
    result = lockstep(
        "train", *TINY, "--steps", "5", "--workers", "1", "--no-tensorboard", "--run", f"{small_disk}/run"
    )
    assert "is full" in refused(result)
    assert '"kind": "train"' not in (small_disk / "run/metrics.jsonl").read_text()


def test_a_full_disk_is_refused(lockstep: Command, small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(b"x" * (128 << 10))
    result = lockstep("train", *TINY, "--steps", "5", "--workers", "1", "--run", f"{small_disk}/run")
    assert "No space left" in refused(result)
