"""F84: the tutorial turns a script for one process into one for any number of workers; each of its steps runs.

Whoever makes the edits as the page shows them has the scripts of examples/tutorial, byte for byte.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY, run

SCRIPTS = REPOSITORY / "examples/tutorial"
PAGE = (REPOSITORY / "docs/tutorial.md").read_text()
LAST = 4
OPTIONS = ["--data", "cifar", "--batch-size", "16"]

pytestmark = pytest.mark.timeout(240)  # a dozen processes that import torch


def script(number: int) -> str:
    return (SCRIPTS / f"step{number}.py").read_text()


def edits(number: int) -> list[tuple[str, str]]:
    """What the page tells to replace in a step, and by what."""
    section = re.split(r"^## ", PAGE.partition(f"\n## Step {number}: ")[2], flags=re.MULTILINE)[0]
    found = []
    for block in re.findall(r"^```diff\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        lines = [line or " " for line in block.splitlines()]
        assert {line[0] for line in lines} <= set(" +-")
        old, new = ([line[1:] for line in lines if line[0] != sign] for sign in "+-")
        found.append(("\n".join([*old, ""]), "\n".join([*new, ""])))
    return found


@pytest.mark.parametrize("number", range(1, LAST + 1))
def test_who_follows_literally_gets_the_next_script(number: int) -> None:
    """F84: `diff` against the solution is empty."""
    text = script(number - 1)
    assert len(edits(number)) >= 1
    for old, new in edits(number):
        assert text.count(old) == 1, f"not clear where this is:\n{old}"
        text = text.replace(old, new)
    assert text == script(number)


def test_the_page_has_a_step_for_each_script() -> None:
    steps = re.findall(r"^## Step (\d+): ", PAGE, re.MULTILINE)
    assert [int(number) for number in steps] == list(range(LAST + 1))
    assert len(list(SCRIPTS.glob("step*.py"))) == LAST + 1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """52 training images and 20 test images in the binary format of CIFAR-10: 7 steps of 16 in two epochs."""
    directory = tmp_path_factory.mktemp("tutorial")
    (directory / "cifar").mkdir()
    generator = np.random.default_rng(0)
    for name, count in {"data_batch_1.bin": 28, "data_batch_2.bin": 24, "test_batch.bin": 20}.items():
        records = generator.integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(directory / "cifar" / name)
    return directory


def python(place: Path, number: int, epochs: int = 2, threads: int = 1) -> list[str]:
    """The lines that a script prints when it runs by itself."""
    command = [sys.executable, str(SCRIPTS / f"step{number}.py"), *OPTIONS, "--epochs", str(epochs)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": str(threads)}
    result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture(scope="module")
def alone(place: Path) -> list[str]:
    """What the last script prints when it runs by itself."""
    return python(place, LAST)


@pytest.fixture(scope="module")
def launched(place: Path) -> dict[int, str]:
    """What the last script prints on 1 and on 4 workers."""
    shown = {}
    for workers in (1, 4):
        options = ["--workers", str(workers), "--run", f"on-{workers}", "--set", "log_every=1"]
        result = run("launch", *options, str(SCRIPTS / f"step{LAST}.py"), *OPTIONS, "--epochs", "2", cwd=place)
        assert result.returncode == 0, result.stderr
        shown[workers] = result.stdout
    return shown


def test_the_first_steps_change_nothing(place: Path) -> None:
    """F84: the plain script, then evaluation as a function, then a job that is not used yet: with one thread, which the
    job chooses whatever the machine has, they have the same bits."""
    printed, weights = [], []
    for number, threads in ((0, 1), (1, 1), (2, 1), (2, 2)):
        printed.append(python(place, number, epochs=1, threads=threads))
        weights.append((place / "resnet20.pt").read_bytes())
        (place / "resnet20.pt").unlink()
    assert [line.split(":")[0] for line in printed[0]] == ["epoch 0"]
    assert printed == [printed[0]] * 4
    assert weights == [weights[0]] * 4


def test_the_number_of_threads_is_a_part_of_the_bits_as_the_page_says(place: Path) -> None:
    """The control: a plain script has other weights with two threads."""
    assert "OMP_NUM_THREADS=1 python step1.py" in PAGE
    weights = []
    for threads in (1, 2):
        python(place, 1, epochs=1, threads=threads)
        weights.append((place / "resnet20.pt").read_bytes())
    assert weights[0] != weights[1]


def test_the_loop_over_leaves_runs_and_the_last_step_says_what_it_said(place: Path, alone: list[str]) -> None:
    assert alone[:-1] == python(place, 3)
    assert alone[-1].startswith("digest ")


def test_the_last_script_ends_on_one_digest_by_itself_and_on_1_and_4_workers(
    place: Path, alone: list[str], launched: dict[int, str]
) -> None:
    """F84, F59"""
    for shown in launched.values():
        assert shown.splitlines()[-1] == alone[-1]


def test_the_trained_weights_load_into_the_plain_network(
    place: Path, alone: list[str], launched: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page shows it."""
    from safetensors.torch import load_file

    from lockstep.digest import digest, entries_of_tensors

    monkeypatch.syspath_prepend(SCRIPTS)
    from resnet import ResNet20

    model = ResNet20()
    (newest,) = (place / "runs/on-4/checkpoints").glob("step-000000007")
    model.load_state_dict(load_file(newest / "model.safetensors"))
    assert f"digest {digest(entries_of_tensors(model.state_dict().items()))}" == alone[-1]


def test_tensorboard_shows_one_curve_by_steps_and_two_by_time(place: Path, launched: dict[int, str]) -> None:
    """F84: same values at the same steps, at other times."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    one, four = (EventAccumulator(str(place / f"runs/on-{workers}")).Reload() for workers in launched)
    tags = ["train/loss", "train/lr", "eval/top1", "eval/loss"]
    assert set(tags) <= set(one.Tags()["scalars"])
    for tag in tags:
        ours, theirs = one.Scalars(tag), four.Scalars(tag)
        assert [(event.step, event.value) for event in ours] == [(event.step, event.value) for event in theirs]
        assert len(ours) == (2 if tag.startswith("eval") else 7)
        since = [[event.wall_time - events[0].wall_time for event in events[1:]] for events in (ours, theirs)]
        assert since[0] != since[1]
