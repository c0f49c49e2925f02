"""The network is cut or slow: members part, or wait, and the digest is that of an undisturbed run.

Real links between network namespaces: that needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RECIPE, REPOSITORY, digest_in, run
from tests.engines.netns import SUPERVISOR, Network
from tests.test_resume import rows_of, wait_for_step

LONGER = [*RECIPE, "--steps", "150", "--set", "evaluation.every_steps=0", "--set", "checkpoints.every_steps=0"]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not all(map(shutil.which, ("ip", "bridge", "tc"))), reason="needs Debian's iproute2"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest_in(run("train", *LONGER, "--workers", "2", "--run", "run", cwd=tmp_path_factory.mktemp("whole")))


def start(network: Network, workers: int, *options: str) -> subprocess.Popen[str]:
    """The command on the supervisor's host, with a worker on each of the others."""
    inside = ["ip", "netns", "exec", f"{network.prefix}s", sys.executable, "-m", "tests.engines.netns", network.prefix]
    arguments = ["train", *LONGER, "--workers", str(workers), "--engine", "netns", "--patience", "4", "--run", "run"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*inside, *arguments, *options], env=environment, **pipes)  # type: ignore[call-overload,no-any-return]


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    return digest_in(subprocess.CompletedProcess([], process.returncode, out, err)), err


def train_and_part(network: Network, one: str, other: str, whole: str) -> str:
    """Three workers train, two hosts cannot reach each other from step 20 on, the result is the same; what is shown."""
    process = start(network, 3)
    wait_for_step(process, "run", 20)
    network.part(one, other)
    digest, shown = finish(process)
    assert digest == whole
    return shown


def test_two_workers_that_cannot_reach_each_other(workspace: Path, network: Network, whole: str) -> None:
    """Both report, the newer one goes, and its replacement joins; nobody goes on alone."""
    shown = train_and_part(network, "w0", "w1", whole)
    assert [(row["worker"], row["how"]) for row in rows_of("run", "death")] == [
        (1, "could not be reached by its peers")
    ], shown


def test_a_worker_that_cannot_reach_the_supervisor(workspace: Path, network: Network, whole: str) -> None:
    """Its peers still hear it, and leave it all the same."""
    shown = train_and_part(network, "w1", "s", whole)
    (row,) = rows_of("run", "death")
    assert row["worker"] == 1, shown
    assert "sent no heartbeat" in row["how"]


def test_a_worker_whose_link_is_down(workspace: Path, network: Network, whole: str) -> None:
    process = start(network, 2, "--no-replace")
    wait_for_step(process, "run", 20)
    network.cut("w1")
    digest, _ = finish(process)
    assert digest == whole
    assert [row["worker"] for row in rows_of("run", "death")] == [1]


def test_a_slow_link_is_waited_for(workspace: Path, network: Network) -> None:
    """A step that takes longer than the patience for standing still, because the network does, expels nobody."""
    network.throttle("w1", "250kbit")
    process = start(network, 2, "--steps", "2")
    digest, _ = finish(process)
    assert not rows_of("run", "death")
    assert max(row["spans"]["exchange"] for row in rows_of("run", "train")) > 4
    assert digest == digest_in(run("train", *LONGER, "--steps", "2", "--workers", "1", "--run", "whole"))


def test_ranks_of_a_launcher_on_two_hosts(workspace: Path, network: Network, whole: str) -> None:
    """Each host has an address of its own, and rank 0 is found by its name for the others."""

    def rank(number: int, host: str) -> subprocess.Popen[str]:
        inside = ["ip", "netns", "exec", f"{network.prefix}{host}", sys.executable, "-m", "lockstep"]
        variables = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": SUPERVISOR, "MASTER_PORT": "23456"}
        arguments = ["train", *LONGER, "--engine", "env", "--run", "run"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}
        return subprocess.Popen([*inside, *arguments], env=environment, **pipes)  # type: ignore[call-overload,no-any-return]

    other, first = rank(1, "w0"), rank(0, "s")
    try:
        assert finish(first)[0] == whole
        assert other.wait(timeout=30) == 0
    finally:
        other.kill()
    assert {row["worker"] for row in rows_of("run", "spans")} == {0, 1}
