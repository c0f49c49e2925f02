"""Exact evaluation: every example once, however the test set is cut and whoever evaluates it."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from lockstep.config import Evaluation
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.evaluate import LeafResult, combine, evaluate_leaf, num_leaves
from lockstep.report.confusion import matrix_table, of_counts, per_class_table
from lockstep.worker import message_of
from tests.alone import set_up, tiny_recipe
from tests.conftest import Command, start
from tests.test_bad_input import refused
from tests.test_resume import TINY, rows_of, wait_for_step


def test_leaves_cover_the_test_set_once_with_a_smaller_last_one() -> None:
    """F67 F69: 2000 = 6 x 300 + 200."""
    recipe = tiny_recipe(evaluation=Evaluation(leaf_batch=300))
    replica = set_up(recipe)[0]
    source = open_dataset(recipe.data, 0).test
    results = {leaf: evaluate_leaf(replica, source, recipe.evaluation, leaf) for leaf in range(7)}
    assert num_leaves(2000, recipe.evaluation) == 7
    assert [results[leaf].count for leaf in range(7)] == [300] * 6 + [200]
    figures = combine(results)
    batch = source.fetch(in_order(0, 2000))
    replica.model.eval()
    with torch.inference_mode():
        images, labels = replica.device.put(batch, channels_last=True)
        logits = replica.model(replica.preprocess.normalize(images))
    assert figures["examples"] == 2000
    assert figures["top1"] == (logits.argmax(1) == labels).sum().item() / 2000
    assert abs(figures["loss"] - torch.nn.functional.cross_entropy(logits.double(), labels).item()) < 1e-5


def test_a_number_of_leaves_on_request() -> None:
    """F67."""
    assert num_leaves(2000, Evaluation(leaf_batch=300, max_leaves=2)) == 2
    assert num_leaves(100, Evaluation(leaf_batch=300, max_leaves=2)) == 1


def test_losses_are_added_by_leaf_and_not_by_arrival() -> None:
    results = {leaf: LeafResult(1, 0, 0, loss) for leaf, loss in enumerate([1e16, 1.0, -1e16, 1.0])}
    backwards = dict(sorted(results.items(), reverse=True))
    assert combine(results) == combine(backwards)
    assert sum(result.loss for result in backwards.values()) != sum(result.loss for result in results.values())


def test_evaluation_changes_neither_weights_nor_statistics() -> None:
    recipe = tiny_recipe()
    replica = set_up(recipe)[0]
    before = replica.digest()
    evaluate_leaf(replica, open_dataset(recipe.data, 0).test, recipe.evaluation, 0)
    assert replica.digest() == before
    assert replica.model.training


def test_evaluation_uses_the_running_statistics() -> None:
    """A single image gives the same logits as inside a batch."""
    recipe = replace(tiny_recipe(), evaluation=Evaluation(leaf_batch=1))
    replica = set_up(recipe)[0]
    source = open_dataset(recipe.data, 0).test
    one = evaluate_leaf(replica, source, recipe.evaluation, 0)
    two = evaluate_leaf(replica, source, Evaluation(leaf_batch=2), 0)
    other = evaluate_leaf(replica, source, recipe.evaluation, 1)
    assert abs(one.loss + other.loss - two.loss) < 1e-5


def test_evaluating_a_run_that_is_being_trained_leaves_it_alone(lockstep: Command, workspace: Path) -> None:
    """Its checkpoints come and go many times while the evaluation starts, and none may vanish under it."""
    every = ["--set", "checkpoints.every_steps=5", "--set", "checkpoints.keep=1"]
    process = start("train", *TINY, *every, "--steps", "100000", "--workers", "1", "--run", "run", cwd=workspace)
    try:
        wait_for_step(process, "run", 15)
        announced = Path("runs/run/supervisor.json").read_text()
        evaluated = lockstep("evaluate", "run", "--workers", "1")
        assert evaluated.returncode == 0, evaluated.stderr
        assert Path("runs/run/supervisor.json").read_text() == announced
        assert Path("runs/run/logs/evaluator-0.log").exists()
        assert process.poll() is None
        assert not list(Path("runs/run").glob(".pinned-*"))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_evaluate_once_and_exit_over_several_workers(lockstep: Command) -> None:
    """F66 F69 F70: the figures of training, from one worker and from three, without touching the run. The confusion
    table counts every example once; its trace is top1."""
    whole = [*TINY, "--leaves", "4", "--set", "evaluation.leaf_batch=300", "--set", "evaluation.max_leaves=0"]
    every = ["--set", "checkpoints.every_steps=10", "--set", "evaluation.every_steps=10"]
    trained = lockstep("train", *whole, *every, "--steps", "12", "--workers", "1", "--run", "run")
    before = Path("runs/run/metrics.jsonl").read_text(), Path("runs/run/best.json").read_text()
    tenth, last = rows_of("run", "eval")
    one = json.loads(lockstep("evaluate", "run", "--checkpoint", "10", "--json", "--workers", "1").stdout)
    assert {key: one[key] for key in ("step", "examples", "top1", "top5", "loss")} == {
        key: tenth[key] for key in ("step", "examples", "top1", "top5", "loss")
    }
    assert "confusion" not in tenth
    counts = one["confusion"]
    assert len({(label, guess) for label, guess, _ in counts}) == len(counts)
    assert sum(count for *_, count in counts) == 2000
    assert sum(count for label, guess, count in counts if label == guess) == round(tenth["top1"] * 2000)
    assert [entry["examples"] for entry in one["classes"]] == [200] * 10
    three = lockstep("evaluate", "run", "--checkpoint", "10", "--confusion", "--workers", "3")
    assert three.returncode == 0, three.stderr
    same = of_counts(tuple(map(tuple, counts)), 10, tuple(entry["name"] for entry in one["classes"]))
    assert three.stdout.endswith(f"{per_class_table(same, show_all=False)}\n{matrix_table(same)}\n")
    assert "run: step 10 is evaluated by 3 workers; logs in runs/run/logs" in three.stderr
    assert "12 steps" not in three.stderr
    assert "other classes" not in three.stderr
    assert three.stdout.startswith(f"run: step 10, top1 {tenth['top1']:.2%}")
    assert trained.stdout.startswith(f"run: step 12, top1 {last['top1']:.2%}")
    assert f", loss {last['loss']:.4f} on 2000 test images" in trained.stdout
    assert before == (Path("runs/run/metrics.jsonl").read_text(), Path("runs/run/best.json").read_text())
    assert json.loads(before[1])["top1"] == max(tenth["top1"], last["top1"])


def test_a_run_that_cannot_be_written_to_is_one_sentence(lockstep: Command) -> None:
    """As that of a colleague is; not for root, so something is in the way here."""
    assert lockstep("train", *TINY, "--steps", "1", "--workers", "1", "--run", "run").returncode == 0
    shutil.rmtree("runs/run/logs")
    Path("runs/run/logs").write_text("in the way")
    Path("runs/run/followed.jsonl").symlink_to("nowhere/followed.jsonl")
    for options in ([], ["--follow"]):
        assert "cannot write to runs/run" in refused(lockstep("evaluate", "run", "--workers", "1", *options))


def test_data_with_other_classes_are_evaluated_with_a_warning_and_another_number_is_refused(lockstep: Command) -> None:
    """A run on CIFAR-10 fits the shapes, and its figures there mean nothing."""
    lockstep("train", *TINY, "--steps", "1", "--workers", "1", "--run", "run")
    stored = json.loads(Path("runs/run/dataset.json").read_text())
    was, stored["class_names"][3] = stored["class_names"][3], "cat"
    Path("runs/run/dataset.json").write_text(json.dumps(stored))
    result = lockstep("evaluate", "run", "--data", "shapes", "--workers", "1")
    assert result.returncode == 0, result.stderr
    assert f"other classes than those of run: class 3 is {was!r} here, and was 'cat' in training" in result.stderr
    stored |= {"num_classes": 7, "class_names": stored["class_names"][:7]}
    Path("runs/run/dataset.json").write_text(json.dumps(stored))
    result = lockstep("evaluate", "run", "--data", "shapes", "--workers", "1")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "these data have 10 classes, but run was trained on 7: give data with the same classes" in result.stderr


def test_the_confusion_table_is_that_of_labels_and_first_guesses() -> None:
    """F69: 300 + 300 + 300, counted leaf by leaf and at once."""
    recipe = tiny_recipe(evaluation=Evaluation(leaf_batch=300))
    replica = set_up(recipe)[0]
    source = open_dataset(recipe.data, 0).test
    leaves = {leaf: evaluate_leaf(replica, source, recipe.evaluation, leaf, with_confusion=True) for leaf in range(3)}
    batch = source.fetch(in_order(0, 900))
    replica.model.eval()
    with torch.inference_mode():
        images, _ = replica.device.put(batch, channels_last=True)
        guesses = replica.model(replica.preprocess.normalize(images)).argmax(1).tolist()
    counted = {(label, guess): count for label, guess, count in combine(leaves)["confusion"]}
    assert counted == Counter(zip(batch.labels.tolist(), guesses, strict=True))


def test_training_sends_no_confusion_table() -> None:
    replica = set_up(tiny_recipe())[0]
    result = evaluate_leaf(replica, open_dataset(replica.recipe.data, 0).test, Evaluation(leaf_batch=10), 0)
    assert result.confusion == ()
    assert "confusion" not in combine({0: result})
    assert "confusion" not in message_of(result)
