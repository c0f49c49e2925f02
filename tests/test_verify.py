"""Silent corruption and foreign arithmetic: a flipped bit is found, a process that computes other bits is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import injection
from tests.conftest import RECIPE, digest_in, run, run_with_program
from tests.test_resume import rows_of

Undisturbed = tuple[str, list[float]]


@pytest.mark.parametrize(
    ("rule", "workers", "why"),
    [
        ("flip-weights worker=1 step=7 phase=exchange", 2, "its leaves of step 8 had other bits"),
        ("flip-momentum worker=0 step=6 phase=exchange", 2, "its leaves of step 7 had other bits"),
        ("flip-gradient worker=1 step=10", 2, "its gradient of leaf 2 had other bits"),
        ("flip-weights worker=1 step=9 phase=exchange", 2, "its state has other bits"),
        ("flip-weights worker=2 step=7 phase=exchange", 3, "its state has other bits"),
        ("flip-gradient worker=0 step=10", 3, "its gradient of leaf 0 had other bits"),
        ("flip-weights worker=0 step=23 phase=exchange", 3, "its state has other bits"),
    ],
)
def test_a_flipped_bit_is_found_and_its_worker_expelled(
    workspace: Path, undisturbed: Undisturbed, rule: str, workers: int, why: str
) -> None:
    """Named by majority, by a third computation or by a replay; the run goes back, and ends as if nothing had been."""
    with injection.rules(rule):
        result = run("train", *RECIPE, "--verify-every", "5", "--workers", str(workers), "--run", "run")
    wrong = int(rule.split("worker=")[1].split()[0])
    assert [(row["worker"], row["why"]) for row in rows_of("run", "corruption")] == [(wrong, why)], result.stderr
    assert digest_in(result) == undisturbed[0]
    assert f"worker {wrong} computed wrong bits" in result.stderr
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]
    steps = [row["step"] for row in rows_of("run", "checkpoint")]
    assert steps == sorted(set(steps))


def test_without_verification_a_flipped_bit_changes_the_result(workspace: Path, undisturbed: Undisturbed) -> None:
    """The control: the flips above are such that they matter."""
    with injection.rules("flip-momentum worker=0 step=6 phase=exchange"):
        result = run("train", *RECIPE, "--workers", "1", "--run", "run")
    assert digest_in(result) != undisturbed[0]


def test_verifying_changes_no_bit_also_when_a_worker_dies(workspace: Path, undisturbed: Undisturbed) -> None:
    with injection.rules("kill worker=1 step=10 phase=verify"):
        result = run("train", *RECIPE, "--verify-every", "5", "--workers", "3", "--run", "run")
    assert digest_in(result) == undisturbed[0]
    assert not rows_of("run", "corruption")
    assert len(rows_of("run", "death")) == 1


def test_the_checkpoint_to_go_back_to_is_kept(workspace: Path) -> None:
    """Many newer ones have been written since the last verification, and a replacement needs one to begin with."""
    every = ["--set", "checkpoints.every_steps=1", "--set", "checkpoints.keep=1"]
    constant = ["--set", "schedule.name=constant", "--set", "schedule.warmup=0"]
    verified = ["--verify-every", "1000", "--workers", "2"]
    first = run("train", *RECIPE, *constant, *every, *verified, "--steps", "8", "--run", "run")
    assert first.returncode == 0, first.stderr
    with injection.rules("kill worker=0 step=14 phase=forward; kill worker=1 step=14 phase=forward"):
        resumed = run("resume", "run", "--steps", "24")
    assert len(rows_of("run", "death")) == 2, resumed.stderr
    assert rows_of("run", "generation")[-1]["step"] == 8
    whole = run("train", *RECIPE, *constant, "--workers", "1", "--run", "whole")
    assert digest_in(resumed) == digest_in(whole)


def test_a_resume_begins_from_what_was_verified(workspace: Path) -> None:
    """A session that ended between two verifications may have left wrong bits."""
    arguments = [*RECIPE, "--set", "checkpoints.every_steps=4", "--verify-every", "5", "--workers", "2"]
    whole = digest_in(run("train", *arguments, "--steps", "12", "--run", "run"))
    listed = json.loads(Path("runs/run/checkpoints.json").read_text())
    assert listed["verified"] == 12
    Path("runs/run/checkpoints.json").write_text(json.dumps({**listed, "verified": 10}))
    resumed = run("resume", "run")
    assert "step-000000012 was not verified: the run goes on from step 8" in resumed.stderr
    assert digest_in(resumed) == whole


# A worker that must not use the vector instructions that the others use.
PROGRAM = """
import os, runpy, sys
if os.environ["LOCKSTEP_ID"] in "ODD".split(","):
    os.environ["ATEN_CPU_CAPABILITY"] = "default"
    os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"
runpy.run_module("lockstep.worker", run_name="__main__")
"""


def train_with(odd: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lockstep ...` where the workers with these numbers compute with other instructions."""
    Path("odd.py").write_text(PROGRAM.replace("ODD", odd))
    return run_with_program([sys.executable, "odd.py"], *arguments)


def test_a_process_whose_arithmetic_differs_is_refused_by_name(workspace: Path, undisturbed: Undisturbed) -> None:
    result = train_with("1", "train", *RECIPE, "--workers", "3", "--run", "run")
    assert digest_in(result) == undisturbed[0]
    assert "worker 1 is refused, because it computes other bits than this run: cpu_capability is" in result.stderr
    assert [row["worker"] for row in rows_of("run", "refused")] == [1]
    assert sorted(row["worker"] for row in rows_of("run", "spans")) == [0, 2]


def test_a_run_is_not_continued_with_other_arithmetic_unless_that_is_allowed(
    workspace: Path, undisturbed: Undisturbed
) -> None:
    first = ["--workers", "1", "--run", "run"]
    assert train_with("", "train", *RECIPE, *first, "--steps", "12").returncode == 0
    refused = train_with("0", "resume", "run", "--steps", "24")
    assert refused.returncode == 2
    assert "cpu_capability is DEFAULT there and" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "mixed" not in json.loads(Path("runs/run/environment.json").read_text())
    mixed = train_with("0", "resume", "run", "--steps", "24", "--allow-mixed")
    assert mixed.returncode == 0, mixed.stderr
    assert "this digest is not the recipe's" in mixed.stdout
    assert json.loads(Path("runs/run/environment.json").read_text())["mixed"][0]["worker"] == 0


OWN = """
import math

from torch import nn

def net(num_classes, image_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(image_shape), 8), nn.ReLU(), nn.Linear(8, num_classes))
"""


def test_a_run_whose_code_was_edited_is_not_continued_and_the_code_is_named(workspace: Path) -> None:
    Path("me.py").write_text(OWN)
    first = run("train", *RECIPE, "--model", "me.py:net", "--stop-at", "4", "--workers", "1", "--run", "run")
    assert first.returncode == 0, first.stderr
    Path("me.py").write_text(OWN.replace("ReLU", "GELU"))
    for _ in range(2):  # that it was tried is no reason to say something else
        refused = run("resume", "run", "--stop-at", "6")
        assert refused.returncode == 2
        assert "the code of me.py:net has changed since the run began; bring the old code back, " in refused.stderr
        assert "suspect" not in refused.stderr
    Path("me.py").write_text(OWN)
    assert run("resume", "run", "--stop-at", "6").returncode == 0


def test_a_model_that_draws_from_a_generator_of_its_own_is_suspected_first(workspace: Path) -> None:
    drawn = "    net[1].weight.data *= float(numpy.random.default_rng().uniform())\n    return net\n"
    Path("me.py").write_text("import numpy\n" + OWN.replace("return nn", "net = nn") + drawn)
    result = run("train", *RECIPE, "--model", "me.py:net", "--stop-at", "2", "--workers", "2", "--run", "run")
    assert result.returncode == 0, result.stderr
    assert "so suspect random numbers that me.py:net draws from a generator of its own" in result.stderr
