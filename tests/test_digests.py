"""The promise: one recipe, one digest, for every number of workers; and controls that show the digest can differ."""

from __future__ import annotations

import json
from pathlib import Path

import PIL
import pytest

from lockstep import metrics
from tests.augmentations import EVERYTHING
from tests.conftest import Command, digest_in
from tests.data.test_cifar import write

# Small enough for many runs: 8 leaves of 2 images, evaluated in uneven leaves.
COMMON = ["--data", "shapes", "--leaves", "8", "--batch-size", "16", "--steps", "20", "--lr", "0.05"]
SMALL_EVALUATION = ["--set", "evaluation.leaf_batch=70", "--set", "evaluation.max_leaves=4"]
RESNET = ["resnet20-cifar10", *COMMON, *SMALL_EVALUATION]
DROPOUT = ["demo", *COMMON, *SMALL_EVALUATION, "--set", "model.dropout=0.3"]


def train(lockstep: Command, arguments: list[str], workers: int) -> tuple[str, dict[str, object]]:
    run = f"workers-{workers}"
    digest = digest_in(lockstep("train", *arguments, "--workers", str(workers), "--run", run))
    rows = metrics.read(Path("runs") / run / "metrics.jsonl")
    (evaluation,) = [row for row in rows if row["kind"] == "eval"]
    del evaluation["time"]
    return digest, evaluation


@pytest.mark.timeout(240)
@pytest.mark.parametrize("arguments", [RESNET, DROPOUT], ids=["resnet20", "dropout"])
def test_digest_and_evaluation_do_not_depend_on_the_number_of_workers(lockstep: Command, arguments: list[str]) -> None:
    """F56 F59 F69: 20 steps and an evaluation, N = 1, 2, 3, 4, 5, 8 at V = 8."""
    results = {workers: train(lockstep, arguments, workers) for workers in (1, 2, 3, 4, 5, 8)}
    assert all(result == results[1] for result in results.values()), results


def test_augmented_training_does_not_depend_on_the_number_of_workers(lockstep: Command) -> None:
    """F12 F59: with every augmentation at once, which also shows that all of them can be set by hand."""
    everything = [f"--set=data.{key}={value}" for key, value in EVERYTHING.items()]
    short = ["demo", *COMMON, *SMALL_EVALUATION, "--leaves", "4", "--steps", "4", *everything]
    results = {workers: train(lockstep, short, workers) for workers in (1, 2, 4)}
    assert all(result == results[1] for result in results.values()), results
    facts = json.loads(Path("runs/workers-1/environment.json").read_text())
    assert facts["pillow"] == PIL.__version__


def test_the_fast_recipe_does_not_depend_on_the_number_of_workers(lockstep: Command) -> None:
    """F59: Muon, weights from the images, alternating flips, and five steps at sides of 20, 20, 24, 24 and 32. The
    control has 32 in all of them."""
    write(Path("data"), train=60, test=20)
    narrow = ["--leaves", "4", "--batch-size", "16", "--steps", "5", "--set", "model.width=4"]
    fast = ["fast-cifar10", "--data", "data", *narrow, "--set", "evaluation.leaf_batch=7"]
    one, two = (train(lockstep, fast, workers) for workers in (1, 2))
    assert one == two
    control = lockstep("train", *fast, "--set", "data.sizes=[[1, 32]]", "--workers", "1", "--run", "control")
    assert digest_in(control) != one[0]


def test_two_threads_give_other_bits(lockstep: Command) -> None:
    """The control: were the digest blind, or the threads ignored, this would fail."""
    short = [*RESNET, "--batch-size", "32", "--steps", "2", "--workers", "1"]
    one = digest_in(lockstep("train", *short, "--run", "one"))
    two = digest_in(lockstep("train", *short, "--threads", "2", "--run", "two"))
    assert one != two
