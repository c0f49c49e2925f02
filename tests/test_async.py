"""`--strategy async`: servers hold the weights and apply gradients as they come (F54)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep import checkpoint, injection
from lockstep.async_server import Service, keeper_of
from lockstep.config import Job
from lockstep.data import open_dataset
from lockstep.exchange.link import Header, Kind
from lockstep.generation import solo
from lockstep.membership import Membership
from tests.alone import set_up, tiny_recipe
from tests.conftest import RECIPE, Command, digest_in, start
from tests.test_resume import rows_of, wait_for_step
from tests.test_shard import contributions, message

psutil = pytest.importorskip("psutil")

ASYNC = ["--strategy", "async", "--servers", "2", "--max-staleness", "2", "--workers", "2"]
LIMIT = (2 * 2 + 1) * 4 - 1
"""Updates that a gradient may lack with this staleness and 4 leaves."""
ENDLESS = [*RECIPE, "--steps", "100000", "--set", "evaluation.every_steps=0", "--set", "schedule.name=constant"]


def servers_of(process_id: int) -> list[int]:
    """The process ids of the servers, in the order of what they own."""
    children = psutil.Process(process_id).children(recursive=True)
    return sorted(child.pid for child in children if "lockstep.async_server" in child.cmdline())


def test_two_workers_and_two_servers_learn_the_demo(lockstep: Command, workspace: Path) -> None:
    """F54: it converges, staleness is bounded and in the metrics, and the run is marked as not reproducible."""
    options = ["--steps", "150", "--set", "evaluation.every_steps=75", "--set", "log_every=10"]
    result = lockstep("train", "demo", *options, *ASYNC, "--run", "run")
    digest = digest_in(result)
    rows = rows_of("run", "train")
    assert [row["step"] for row in rows] == list(range(10, 151, 10))
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.8
    first, last = rows_of("run", "eval")
    assert (first["step"], last["step"]) == (75, 150)
    assert last["top1"] > 0.4  # of ten classes; `allreduce` has about 0.5 here, and both have 0.1 untrained
    assert sum(sum(row["staleness"].values()) for row in rows) == 150 * 4
    assert 0 < max(row["staleness_max"] for row in rows) <= LIMIT
    assert lockstep("digest", "run").stdout.strip() == digest
    assert "not reproducible" in result.stdout.splitlines()[-2]
    assert rows_of("run", "end")[0]["reproducible"] is False
    assert json.loads(Path("runs/run/environment.json").read_text())["reproducible"] is False
    assert json.loads(lockstep("runs", "--json").stdout.splitlines()[-1])["is_reproducible"] is False
    assert f"{digest[:12]} (varies)" in lockstep("runs").stdout.replace("\n", " ")
    evaluated = lockstep("evaluate", "run", "--workers", "1")
    assert f"top1 {last['top1']:.2%}" in evaluated.stdout


def test_a_slow_worker_is_never_further_behind_than_the_bound(lockstep: Command, workspace: Path) -> None:
    with injection.rules("slow worker=1 factor=30"):
        result = lockstep("train", *RECIPE, *ASYNC, "--max-staleness", "1", "--run", "run")
    assert result.returncode == 0, result.stderr
    rows = rows_of("run", "train")
    assert len(rows) == 24
    assert 4 <= max(row["staleness_max"] for row in rows) <= (2 * 1 + 1) * 4 - 1


@pytest.mark.parametrize("moment", ["worker=1 phase=backward", "worker=0 step=12 phase=evaluate"])
def test_a_killed_worker_is_replaced_and_its_task_handed_out_again(
    lockstep: Command, workspace: Path, moment: str
) -> None:
    """F54: in the midst of a leaf, and of an evaluation."""
    with injection.rules(f"kill {moment}"):
        result = lockstep("train", *RECIPE, *ASYNC, "--run", "run")
    digest_in(result)
    rows = rows_of("run", "train")
    assert [row["step"] for row in rows] == list(range(1, 25))
    assert len(rows_of("run", "death")) == 1
    assert sum(sum(row["staleness"].values()) for row in rows) == 24 * 4
    if "backward" in moment:
        assert sum(row.get("reissued", 0) for row in rows) == 1
    assert [row["step"] for row in rows_of("run", "eval")] == [12, 24]
    assert not rows_of("run", "lost_updates")


@pytest.mark.parametrize(("server", "name"), [(2, "the first"), (3, "another")], ids=["first", "second"])
def test_a_lost_server_begins_again_at_the_last_checkpoint(
    lockstep: Command, workspace: Path, server: int, name: str
) -> None:
    """F54: the others keep what they have, and what is lost is counted."""
    with injection.rules(f"kill worker={server} step=11 phase=push"):
        result = lockstep("train", *RECIPE, *ASYNC, "--run", "run")
    digest = digest_in(result)
    assert "updates of its part are lost" in result.stderr
    assert len(rows_of("run", "death")) == 1
    lost = rows_of("run", "lost_updates")
    assert {row["server"] for row in lost} == {4}
    # The checkpoint of step 8 is the newest, and at most three steps and what had begun of others come after it.
    assert 0 < sum(row["updates"] for row in lost) <= 4 * (11 + 2 - 8)
    assert [row["step"] for row in rows_of("run", "eval")] == [12, 24]
    assert rows_of("run", "train")[-1]["step"] == 24
    newest, _ = checkpoint.newest_good(workspace / "runs/run/checkpoints")
    assert newest is not None
    assert (newest.step, newest.digest) == (24, digest)


def test_a_server_that_is_lost_in_an_evaluation_leaves_nobody_waiting(workspace: Path) -> None:
    """And so does one that is lost before there is any checkpoint."""
    options = [
        "--set",
        "checkpoints.every_steps=0",
        "--set",
        "evaluation.max_leaves=30",
        "--set",
        "evaluation.every_steps=4",
    ]
    process = start("train", *RECIPE, *options, *ASYNC, "--run", "run", cwd=workspace)
    wait_for_step(process, "run", 4)
    os.kill(servers_of(process.pid)[0], signal.SIGKILL)
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert len(rows_of("run", "death")) == 1
    assert [row["step"] for row in rows_of("run", "eval")] == list(range(4, 25, 4))
    assert "digest" in out


def test_without_replacement_a_lost_server_ends_the_job(lockstep: Command, workspace: Path) -> None:
    with injection.rules("kill worker=3 step=5 phase=push"):
        result = lockstep("train", *RECIPE, *ASYNC, "--no-replace", "--run", "run")
    assert result.returncode == 1
    assert "and with it a part of the weights" in result.stderr


def test_a_signal_ends_the_run_at_a_barrier_and_it_resumes(lockstep: Command, workspace: Path) -> None:
    """F54: weights and momentum of all servers are in the checkpoint, also for another number of them."""
    process = start("train", *ENDLESS, *ASYNC, "--run", "run", cwd=workspace)
    wait_for_step(process, "run", 5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    newest, problems = checkpoint.newest_good(workspace / "runs/run/checkpoints")
    assert newest is not None
    assert not problems
    done = newest.step
    assert done >= 5
    replica, _, _ = set_up(tiny_recipe())
    state = checkpoint.load(newest.path, dict(replica.named_state()))
    momenta = {key.removesuffix("/momentum_buffer"): value for key, value in state.optimizer.items()}
    assert set(momenta) == {name for name, _ in replica.model.named_parameters()}
    assert all(momentum.abs().sum() > 0 for momentum in momenta.values())
    assert all(int(state.model[name]) == done for name in state.model if name.endswith("num_batches_tracked"))
    resumed = lockstep("resume", "run", "--steps", str(done + 6), "--servers", "1", "--workers", "1")
    digest_in(resumed)
    assert [row["step"] for row in rows_of("run", "train")] == list(range(1, done + 7))
    again = lockstep("resume", "run", "--steps", str(done + 6))
    assert digest_in(again) == digest_in(resumed)


def test_bytes_are_those_of_the_formula(lockstep: Command, workspace: Path) -> None:
    """Of one worker and one server: V times a pull and a push in every step, as docs/strategies-async.md has it."""
    options = [
        "--workers",
        "1",
        "--servers",
        "1",
        "--set",
        "evaluation.every_steps=0",
        "--set",
        "checkpoints.every_steps=0",
    ]
    result = lockstep("train", *RECIPE, "--steps", "5", *ASYNC, *options, "--run", "run")
    digest_in(result)
    layout = set_up(tiny_recipe())[0].layout
    numbers, rest = layout.integers_start, layout.length - layout.integers_start
    leaves = 4
    for row in rows_of("run", "train"):
        assert row["sent_bytes"] == leaves * 4 * numbers
        assert row["received_bytes"] == leaves * 4 * (numbers + rest)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--verify-every", "10"], "--verify-every compares bits, and with --strategy async no two runs have the same"),
        (["--backup", "1"], "--backup is for the strategy server, and not for async"),
        (["--max-staleness", "-1"], "--max-staleness takes a number of at least 0, not -1"),
        (["--servers", "0"], "--servers takes a number of at least 1, not 0"),
    ],
    ids=["verify", "backup", "staleness", "servers"],
)
def test_what_means_nothing_here_is_refused(
    lockstep: Command, workspace: Path, options: list[str], sentence: str
) -> None:
    result = lockstep("train", *RECIPE, "--strategy", "async", *options)
    assert result.returncode == 2, result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_it_cannot_be_continued_by_a_strategy_with_bits(lockstep: Command, workspace: Path) -> None:
    digest_in(lockstep("train", *RECIPE, "--steps", "2", *ASYNC, "--run", "run"))
    result = lockstep("resume", "run", "--steps", "4", "--strategy", "allreduce")
    assert result.returncode == 2
    assert "continue it with --strategy async" in result.stderr


class Worker:
    """The connection of one to which a server answers."""

    def __init__(self) -> None:
        self.heard: list[Header] = []

    def send(self, header: Header, payload: Any = None) -> None:
        self.heard.append(header)


def test_a_server_that_writes_no_rows_keeps_no_figures_for_them() -> None:
    """Every server is sent the loss of every leaf, and would have that of a whole run in the end."""
    recipe, job = tiny_recipe(), Job(workers=1, strategy="async", servers=2)
    replica, leaves = contributions(recipe, 4)
    dataset = open_dataset(recipe.data, recipe.seed)
    keeper = keeper_of(Membership(2, None), recipe, job, dataset, set_up(recipe)[0], slot=1, first=0, last=3)
    worker, service = Worker(), Service(solo(4), keeper)
    service.connections[0] = worker  # type: ignore[assignment]
    for step in range(3):
        for index, leaf in enumerate(leaves):
            header = Header(Kind.PUSH, step, index=index)
            service.handle(0, header, message(keeper.shard, replica, leaf).numpy())
    assert [header.kind for header in worker.heard] == [Kind.APPLIED] * 12
    assert keeper.shard.version == 12
    assert not keeper.rows._counts
