"""Training under real launchers: torchrun, Open MPI's mpirun, and variables as Kubernetes sets them. One digest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep import environment
from tests.conftest import RECIPE, REPOSITORY, STARTED, digest_in, run
from tests.engines.test_env import free_port
from tests.test_resume import rows_of, wait_for_step

Undisturbed = tuple[str, list[float]]

TRAIN = ["-m", "lockstep", "train", *RECIPE, "--engine", "env", "--run", "run", "--resume"]
SERVED = ["--strategy", "server", "--servers", "1"]
MARKS = {*(launcher.mark for launcher in environment.LAUNCHERS), "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""Not to be inherited from whoever runs the tests."""
SLOW = "; ".join(f"slow worker={worker} factor=5" for worker in range(3))
"""So that there is time to kill someone in the middle."""


def launch(*command: str, **variables: str) -> subprocess.Popen[str]:
    """A launcher, or a process as one would start it, in the background."""
    inherited = {name: value for name, value in os.environ.items() if name not in MARKS}
    process = subprocess.Popen(
        command,
        env={**inherited, "PYTHONPATH": str(REPOSITORY), **variables},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    STARTED.append(process)
    return process


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=200)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def torchrun(count: int, *options: str) -> list[str]:
    """torchrun takes `--run` for the beginning of an option of its own, unless `--` comes before."""
    own = ["--nproc-per-node", str(count), "--master-port", str(free_port()), *options]
    return [sys.executable, "-m", "torch.distributed.run", *own, "-m", "--", *TRAIN[1:]]


def plain(rank: int, world: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def ranks_of(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The processes of a launcher that have become workers or servers, by rank; rank 0 is the command itself."""
    found = {}
    for process in psutil.Process(launcher.pid).children():
        rank = int(process.environ().get("RANK", -1))
        if rank == 0 or "LOCKSTEP_ID" in process.environ():
            found[rank] = process
    return found


@pytest.mark.timeout(240)
def test_torchrun_gives_the_digest_of_an_undisturbed_run(workspace: Path, undisturbed: Undisturbed) -> None:
    """Every rank takes part, and only rank 0 prints; the others' output is in the run's directory."""
    result = finish(launch(*torchrun(2)))
    assert digest_in(result) == undisturbed[0]
    assert result.stdout.count("digest ") == 1
    assert {row["workers"] for row in rows_of("run", "generation")} == {2}
    assert {row["worker"] for row in rows_of("run", "spans")} == {0, 1}
    assert (workspace / "runs/run/logs/worker-1.log").exists()


@pytest.mark.timeout(240)
def test_the_last_ranks_are_servers(workspace: Path, undisturbed: Undisturbed) -> None:
    result = finish(launch(*torchrun(3, "--standalone"), *SERVED))
    assert digest_in(result) == undisturbed[0]
    (row,) = [row for row in rows_of("run", "generation") if row["causes"] == ["start"]]
    assert (row["workers"], row["servers"]) == (2, 1)
    assert (workspace / "runs/run/logs/server-2.log").exists()


@pytest.mark.timeout(360)
def test_a_killed_rank_is_restarted_to_the_same_digest(workspace: Path, undisturbed: Undisturbed) -> None:
    """torchrun ends all and starts them anew; with --resume the run goes on, and nothing of the first try is left."""
    options = ["--standalone", "--max-restarts", "2", "--monitor-interval", "0.1"]
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LOCKSTEP_INJECT": SLOW}
    process = launch(*torchrun(2, *options), **variables)
    wait_for_step(process, "run", 5)
    before = psutil.Process(process.pid).children(recursive=True)
    ranks_of(process)[1].send_signal(signal.SIGKILL)
    result = finish(process)
    assert digest_in(result) == undisturbed[0]
    assert not psutil.wait_procs(before, timeout=10)[1]
    rows = rows_of("run", "generation")
    assert len([row for row in rows if row["causes"] == ["start"]]) == 2, "it was not restarted"
    assert rows[-1]["step"] >= 5, "it did not go on where it was"
    assert rows_of("run", "end")[0]["state"] in ("failed", "stopped")


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Debian's openmpi-bin")
def test_mpirun_gives_the_digest_of_an_undisturbed_run(workspace: Path, undisturbed: Undisturbed) -> None:
    """Three processes, one of them a server."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable]
    result = finish(launch(*mpirun, *TRAIN, *SERVED))
    assert digest_in(result) == undisturbed[0]
    assert result.stdout.count("digest ") == 1


@pytest.mark.timeout(240)
def test_variables_as_kubernetes_sets_them(workspace: Path, undisturbed: Undisturbed) -> None:
    """Whoever comes first waits for the others; all end with exit code 0."""
    port = free_port()
    other = launch(sys.executable, *TRAIN, **plain(1, 2, port))
    first = launch(sys.executable, *TRAIN, **plain(0, 2, port))
    assert digest_in(finish(first)) == undisturbed[0]
    ended = finish(other)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.timeout(240)
def test_a_death_ends_the_job_with_a_checkpoint_and_no_rank_lingers(workspace: Path, undisturbed: Undisturbed) -> None:
    """The others end after rank 0 has said why, and not with exit code 0."""
    port, inject = free_port(), {"LOCKSTEP_INJECT": SLOW}
    processes = [launch(sys.executable, *TRAIN, *SERVED, **plain(r, 3, port), **inject) for r in range(3)]
    wait_for_step(processes[0], "run", 5)
    processes[1].kill()
    first, _, server = [finish(process) for process in processes]
    assert first.returncode == 1, first.stderr
    assert "worker 1 has ended; the job ends with a checkpoint" in first.stderr
    assert "continue from the newest checkpoint" in first.stderr
    assert server.returncode == 1, server.stderr
    again = run("resume", "run", "--workers", "1")
    assert digest_in(again) == undisturbed[0]
    assert rows_of("run", "generation")[-1]["step"] >= 5


@pytest.mark.timeout(240)
def test_no_rank_outlives_rank_0(workspace: Path) -> None:
    port = free_port()
    inject = {"LOCKSTEP_INJECT": SLOW}
    processes = [launch(sys.executable, *TRAIN, *SERVED, **plain(r, 3, port), **inject) for r in range(3)]
    wait_for_step(processes[0], "run", 2)
    processes[0].kill()
    assert [finish(process).returncode for process in processes[1:]] == [3, 3]


@pytest.mark.timeout(240)
def test_a_signal_to_all_ends_with_a_checkpoint(workspace: Path, undisturbed: Undisturbed) -> None:
    """As Slurm does it when the time is over: it tells every process of a step, and torchrun passes it on once more.
    Without its launcher the run goes on too: variables that are gone bind nobody."""
    process = launch(*torchrun(2), LOCKSTEP_INJECT=SLOW)
    wait_for_step(process, "run", 3)
    for one in [*psutil.Process(process.pid).children(recursive=True), process]:
        one.send_signal(signal.SIGTERM)
    stopped = finish(process)
    assert stopped.returncode != 0
    assert rows_of("run", "end")[-1]["state"] == "stopped", stopped.stderr
    assert not rows_of("run", "death")
    assert digest_in(run("resume", "run", "--workers", "1")) == undisturbed[0]


def test_a_signal_that_is_passed_on_is_not_a_second_one(workspace: Path) -> None:
    """A second one means: at once, without a checkpoint."""
    slow = {"LOCKSTEP_INJECT": "slow worker=0 factor=50"}
    process = launch(sys.executable, *TRAIN, **plain(0, 1, free_port()), **slow)
    wait_for_step(process, "run", 1)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert any("stopping after a checkpoint" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    stopped = finish(process)
    assert stopped.returncode == 143
    assert "stopped by SIGTERM with a checkpoint" in stopped.stdout


@pytest.mark.parametrize(
    ("variables", "options", "sentence"),
    [
        ({}, [], "start it as in `torchrun"),
        ({**plain(0, 2, 4000), "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, [], "contradict each other"),
        (plain(0, 2, 4000), ["--workers", "3"], "WORLD_SIZE=2 processes are 2 workers"),
        ({**plain(1, 2, 4000), "LOCKSTEP_WAIT": "0.5"}, [], "rank 1 of 2 has not found rank 0 at 127.0.0.1"),
        ({**plain(0, 2, 4000), "LOCKSTEP_WAIT": "0.5"}, [], "rank 1 of WORLD_SIZE=2 did not come"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    workspace: Path, variables: dict[str, str], options: list[str], sentence: str
) -> None:
    port = {"MASTER_PORT": str(free_port())} if variables else {}
    result = finish(launch(sys.executable, *TRAIN, *options, **{**variables, **port}))
    assert result.returncode == 2, result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_signal_ends_rank_0_while_it_waits_for_the_others(workspace: Path) -> None:
    process = launch(sys.executable, *TRAIN, **plain(0, 2, port := free_port()))
    deadline = time.monotonic() + 60
    while not any(one.laddr.port == port for one in psutil.Process(process.pid).net_connections()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 143
