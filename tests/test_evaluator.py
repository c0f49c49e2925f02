"""An evaluator beside the training, and one that follows it from anywhere."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep import metrics
from tests.conftest import ENDLESS, RECIPE, Command, digest_in, start, stop_and_compare

EVERY_EIGHT = ["--set", "evaluation.every_steps=8", "--set", "checkpoints.every_steps=0"]


def evaluations(path: Path) -> dict[int, tuple[int, float, float]]:
    rows = [row for row in metrics.read(path) if row["kind"] == "eval"]
    assert len({row["step"] for row in rows}) == len(rows)
    return {row["step"]: (row["examples"], row["top1"], row["loss"]) for row in rows}


def until(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"it did not happen within {seconds:.0f} s")


def evaluator_of(supervisor: int) -> psutil.Process | None:
    for child in psutil.Process(supervisor).children():
        try:
            if "lockstep.evaluator" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


def steps_done(name: str) -> int:
    rows = metrics.read(Path("runs") / name / "metrics.jsonl")
    return max((row["step"] for row in rows if row["kind"] == "train"), default=0)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[int, tuple[int, float, float]]]:
    """The digest and the evaluations of a run whose workers evaluate."""
    directory = tmp_path_factory.mktemp("usual")
    process = start("train", *RECIPE, *EVERY_EIGHT, "--workers", "1", "--run", "run", cwd=directory)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.splitlines()[-1].split()[1], evaluations(directory / "runs/run/metrics.jsonl")


def test_an_evaluator_finds_what_the_workers_would_and_changes_no_bit(
    lockstep: Command, usual: tuple[str, dict[int, tuple[int, float, float]]]
) -> None:
    """F64."""
    digest, expected = usual
    done = lockstep("train", *RECIPE, *EVERY_EIGHT, "--workers", "2", "--evaluator", "--run", "run")
    assert digest_in(done) == digest
    found = evaluations(Path("runs/run/metrics.jsonl"))
    assert found[24] == expected[24]
    assert set(found) - {24}, "the evaluator was never heard of"
    assert {step: expected[step] for step in found} == found
    assert Path("runs/run/logs/evaluator-2.log").exists()
    # Workers did nothing of it but the last step.
    best = json.loads(Path("runs/run/best.json").read_text())
    assert best["top1"] == max(top1 for _, top1, _ in found.values())


def test_training_goes_on_while_the_evaluator_stands_still_or_dies(workspace: Path) -> None:
    """F64: it never holds training up."""
    options = ["--set", "evaluation.every_steps=5"]
    process = start("train", *ENDLESS, *options, "--workers", "2", "--evaluator", "--run", "run")
    evaluator = until(lambda: evaluator_of(process.pid))
    until(lambda: evaluations(Path("runs/run/metrics.jsonl")))
    os.kill(evaluator.pid, signal.SIGSTOP)
    seen, before = len(evaluations(Path("runs/run/metrics.jsonl"))), steps_done("run")
    until(lambda: steps_done("run") > before + 20)
    assert len(evaluations(Path("runs/run/metrics.jsonl"))) <= seen + 1
    os.kill(evaluator.pid, signal.SIGKILL)
    until(lambda: len(evaluations(Path("runs/run/metrics.jsonl"))) > seen + 1)
    generations = [row for row in metrics.read(Path("runs/run/metrics.jsonl")) if row["kind"] == "generation"]
    assert len(generations) == 1
    shown = stop_and_compare(process, "run", *options)
    assert "evaluator 2 is gone (it was killed by SIGKILL)" in shown


def test_one_that_follows_waits_evaluates_every_checkpoint_and_ends_with_the_run(
    workspace: Path, usual: tuple[str, dict[int, tuple[int, float, float]]]
) -> None:
    """F65: started before there is anything."""
    _, expected = usual
    follower = start("evaluate", "run", "--follow")
    assert follower.stderr is not None
    assert "waiting for it" in follower.stderr.readline()
    keep = ["--set", "checkpoints.every_steps=8", "--set", "checkpoints.keep=9", "--set", "evaluation.every_steps=0"]
    training = start("train", *RECIPE, *keep, "--workers", "1", "--run", "run")
    out, err = follower.communicate(timeout=100)
    assert follower.returncode == 0, err
    assert training.wait(timeout=60) == 0
    assert evaluations(Path("runs/run/followed.jsonl")) == expected
    best = max(top1 for _, top1, _ in expected.values())
    assert f"3 checkpoints evaluated; best top1 {best:.2%}" in out


def test_one_that_follows_knows_after_a_restart_what_was_the_best(lockstep: Command) -> None:
    """F68 for the follower: its file survives it, and `runs` reads it."""
    keep = ["--set", "checkpoints.every_steps=8", "--set", "checkpoints.keep=9", "--set", "evaluation.every_steps=0"]
    digest_in(lockstep("train", *RECIPE, *keep, "--workers", "1", "--run", "run"))
    assert lockstep("evaluate", "run", "--follow").returncode == 0
    path = Path("runs/run/followed.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    first = next(row for row in rows if row["kind"] == "eval")
    # As if it had been killed after the first one, in the middle of a line, which was better than all that follow.
    path.write_text("".join(json.dumps(row) + "\n" for row in (rows[0], {**first, "top1": 0.9876})) + '{"kind": "ev')
    again = lockstep("evaluate", "run", "--follow")
    assert "best top1 98.76% at step 8" in again.stdout
    assert again.stderr.count("top1") == 2 * 2  # two checkpoints were left, and a line shows the best too
    assert len(evaluations(path)) == 3
    listed = json.loads(lockstep("runs", "--json").stdout.splitlines()[-1])
    assert listed["best_top1"] == 0.9876


@pytest.mark.parametrize("option", [["--per-class"], ["--hold-out", "0"]])
def test_options_of_a_single_evaluation_are_refused_when_following(lockstep: Command, option: list[str]) -> None:
    done = lockstep("evaluate", "run", "--follow", *option)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{option[0]} is for one evaluation" in done.stderr


def test_a_damaged_checkpoint_is_passed_over(lockstep: Command) -> None:
    """One that a session ends with is always written; others may give way to the next on a busy machine."""
    keep = ["--set", "checkpoints.every_steps=8", "--set", "checkpoints.keep=9", "--set", "evaluation.every_steps=0"]
    digest_in(lockstep("train", *RECIPE, *keep, "--workers", "1", "--run", "run", "--stop-at", "8"))
    digest_in(lockstep("resume", "run"))
    with Path("runs/run/checkpoints/step-000000008/model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    done = lockstep("evaluate", "run", "--follow")
    assert done.returncode == 0
    found = list(evaluations(Path("runs/run/followed.jsonl")))
    assert found in ([16, 24], [24])


def test_a_metric_that_is_no_number_breaks_neither_the_follower_nor_what_is_read_later(lockstep: Command) -> None:
    """In files that any reader of JSON takes; those of older versions say NaN, and null for the best."""
    Path("own.py").write_text("def odd(outputs, targets):\n    return outputs[:, 0] * float('nan')\n")
    digest_in(lockstep("train", *RECIPE, "--set", "metric=own.py:odd", "--workers", "1", "--run", "run"))
    for _ in range(2):
        done = lockstep("evaluate", "run", "--follow")
        assert done.returncode == 0, done.stderr
        assert "none is the best" in done.stdout
    path = Path("runs/run/followed.jsonl")
    for file in (path, Path("runs/run/metrics.jsonl"), Path("runs/run/best.json")):
        assert "NaN" not in file.read_text()
    path.write_text(path.read_text().replace('"odd": null', '"odd": NaN, "best_odd": null'))
    for command in (["evaluate", "run", "--follow"], ["runs"], ["runs", "--json"], ["compare", "run"]):
        done = lockstep(*command)
        assert (done.returncode, "NaN" in done.stdout) == (0, False), done.stderr
