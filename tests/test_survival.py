"""Workers die, hang, come and go, and the digest is that of an undisturbed run.

Failures are injected at a chosen worker, step and phase. Every scenario trains the same recipe.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from lockstep import injection
from lockstep.data.shapes import materialize
from tests.conftest import ENDLESS, RECIPE, digest_in, run, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step

psutil = pytest.importorskip("psutil")


def disturbed(inject: str, *arguments: str, workers: int = 3) -> tuple[str, str]:
    """Train with injected failures: the digest, and what was shown on the way."""
    with injection.rules(inject):
        result = run("train", *RECIPE, "--workers", str(workers), "--run", "run", *arguments)
    return digest_in(result), result.stderr


@pytest.mark.parametrize(
    ("inject", "deaths"),
    [
        ("kill worker=1 step=0 phase=data", 1),
        ("kill worker=0 step=5 phase=backward", 1),
        ("kill worker=2 step=5 phase=exchange", 1),
        ("kill worker=1 step=5 phase=optimizer", 1),
        ("kill worker=1 step=12 phase=evaluate", 1),
        ("kill worker=0 step=24 phase=evaluate", 1),
        ("kill worker=0 step=8 phase=checkpoint", 1),
        ("kill worker=0 step=24 phase=checkpoint", 1),
        ("kill worker=0 step=5 phase=exchange; kill worker=2 step=5 phase=exchange", 2),
        ("kill worker=0 step=5 phase=forward; kill worker=1 step=6 phase=data", 2),
    ],
    ids=lambda value: (
        value.replace("worker=", "").replace("step=", "").replace("phase=", "") if isinstance(value, str) else ""
    ),
)
def test_a_killed_worker_leaves_weights_bit_identical(
    workspace: Path, undisturbed: tuple[str, list[float]], inject: str, deaths: int
) -> None:
    """F79 F80: in every phase, at the first and the last step, several at once, during a recovery."""
    digest, shown = disturbed(inject)
    assert digest == undisturbed[0]
    assert shown.count("was killed by SIGKILL; the others go on") == deaths
    assert len(rows_of("run", "death")) == deaths
    losses = [row["loss"] for row in rows_of("run", "train")]
    assert losses == undisturbed[1]
    for row in rows_of("run", "generation")[1:]:
        assert row["missing_leaves"] <= 4


def test_all_workers_die_at_once_and_the_run_restarts_by_itself(
    workspace: Path, undisturbed: tuple[str, list[float]]
) -> None:
    """From the newest good checkpoint: that of the evaluation at step 12, or of step 8 if it was not on disk yet."""
    digest, shown = disturbed("kill worker=0 step=14 phase=forward; kill worker=1 step=14 phase=forward", workers=2)
    assert digest == undisturbed[0]
    back = [row["step"] for row in rows_of("run", "generation")][-1]
    assert back in (8, 12)
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]
    assert f"nobody is left: new workers are started, and go back to the checkpoint of step {back}\n" in shown
    (recovery,) = [row for row in rows_of("run", "recovery") if "leaves" in row]
    again = recovery["steps"]
    assert back + again in (12, 13, 14), "the last words of a worker that is killed may not be heard"
    assert (recovery["step"], recovery["leaves"]) == (back, again * 4)
    assert f"workers 2 and 3 have joined: 2 workers, back at step {back}" in shown
    summary = json.loads(run("runs", "--json").stdout)
    assert summary["recomputed_leaves"] >= recovery["leaves"]
    assert summary["seconds_lost"] >= recovery["seconds"] > 0.5, "a process takes longer than that to start"


def test_a_stopped_worker_is_expelled_and_the_run_goes_on(
    workspace: Path, undisturbed: tuple[str, list[float]]
) -> None:
    digest, shown = disturbed("stop worker=1 step=5 phase=forward", "--patience", "2.5")
    assert digest == undisturbed[0]
    assert "worker 1 sent no heartbeat for" in shown


SLEEPY = """
import os, time
from lockstep.models.small import small

def net(num_classes, image_shape):
    model, calls = small(num_classes, image_shape), []

    def pause(module, inputs):
        calls.append(1)
        if len(calls) == 9 and os.environ["LOCKSTEP_ID"] == "1":
            time.sleep(4)

    model.register_forward_pre_hook(pause)
    return model
"""


def test_a_slow_worker_is_waited_for(workspace: Path) -> None:
    """A leaf that takes four seconds, a hundred times the usual, is within the default patience."""
    (workspace / "sleepy.py").write_text(SLEEPY)
    result = run("train", *RECIPE, "--set", "model.name=sleepy.py:net", "--workers", "2", "--run", "run")
    assert digest_in(result)
    assert not rows_of("run", "death")
    assert max(row["spans"]["exchange"] for row in rows_of("run", "train")) > 3


def test_a_replacement_joins_and_works(workspace: Path) -> None:
    with injection.rules("kill worker=1 step=5 phase=exchange"):
        process = start("train", *ENDLESS, "--workers", "2", "--run", "run")
        wait_for_step(process, "run", 6)
        wait_for_generation("run", 2)
    assert [row["workers"] for row in rows_of("run", "generation")] == [2, 1, 2]
    assert [row["joined"] for row in rows_of("run", "generation")] == [[], [], [2]]
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 10)
    assert "\nworker 2 has joined: 2 workers\n" in stop_and_compare(process, "run")


def test_without_replacement_the_others_finish(workspace: Path, undisturbed: tuple[str, list[float]]) -> None:
    digest, _ = disturbed("kill worker=1 step=5 phase=exchange", "--no-replace")
    assert digest == undisturbed[0]
    assert not (workspace / "runs/run/logs/worker-3.log").exists()


def test_resize_and_stop_a_running_job(workspace: Path) -> None:
    """Grow, shrink, stop with a checkpoint, resume: the digest of a run that was left alone."""
    process = start("train", *ENDLESS, "--workers", "1", "--run", "run", cwd=workspace)
    wait_for_step(process, "run", 3)
    assert json.loads(Path("runs/run/supervisor.json").read_text())["version"] == 1
    refused = run("resize", "run", "9")
    assert refused.returncode == 2
    assert "give 1 to 4" in refused.stderr
    assert run("resize", "run", "3").returncode == 0
    wait_for_generation("run", 3)
    assert run("resize", "last", "2").returncode == 0
    wait_for_generation("run", 2)
    shown = stop_and_compare(process, "run")
    assert "`lockstep stop`: stopping after a checkpoint" in shown
    assert "SIGTERM" not in shown
    assert "is not running" in run("stop", "run").stderr
    done = rows_of("run", "checkpoint")[-1]["step"]
    by_name = {one["name"]: one["workers"] for one in map(json.loads, run("runs", "--json").stdout.splitlines())}
    assert by_name["run"] == 2, "what was asked for last"
    resumed = run("resume", "run", "--steps", str(done + 3))
    assert "run: 2 workers" in resumed.stderr
    assert run("compare", "run").stdout.splitlines()[1].split()[3] == "1-3"
    assert digest_in(resumed) == digest_in(run("resume", "run-whole", "--steps", str(done + 3)))


def wait_for_generation(name: str, workers: int) -> None:
    """Until the newest generation has so many workers."""
    deadline = time.monotonic() + 60
    while rows_of(name, "generation")[-1]["workers"] != workers:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_crash_loop_ends_with_its_first_cause(workspace: Path) -> None:
    model = "import os, signal\ndef net(num_classes, image_shape):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (workspace / "mine.py").write_text(model)
    result = run("train", *RECIPE, "--set", f"model.name={workspace}/mine.py:net", "--workers", "1", "--run", "run")
    assert result.returncode == 1
    assert "deaths without a step in between; the first: worker 0 was killed by SIGKILL" in result.stderr


def test_data_that_are_pulled_away_keep_only_new_workers_out(workspace: Path) -> None:
    """Whoever has opened them reads on; the replacement of a dead worker cannot, and one sentence says why."""
    shutil.copytree(materialize(), workspace / "data")
    process = start("train", *ENDLESS, "--data", "data", "--workers", "2", "--run", "run")
    wait_for_step(process, "run", 5)
    shutil.rmtree(workspace / "data")
    psutil.Process(process.pid).children()[0].kill()
    deadline = time.monotonic() + 30
    while not rows_of("run", "refused"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_for_step(process, "run", rows_of("run", "train")[-1]["step"] + 5)
    assert run("stop", "run").returncode == 0
    _, shown = process.communicate(timeout=30)
    assert "it cannot set itself up: there is no " in shown
    assert "Traceback" not in shown
    assert rows_of("run", "checkpoint")
