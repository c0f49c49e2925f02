"""Jobs under a real Slurm with several virtual nodes: whatever happens to steps, nodes and time limits, one digest.

That needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lockstep.engines import Command, Role, Site
from lockstep.engines.slurm import Slurm
from lockstep.errors import UserError
from tests.conftest import RECIPE, REPOSITORY, digest_in, run
from tests.engines.virtual_slurm import Cluster, missing, wait_until
from tests.test_resume import rows_of

LONGER = [*RECIPE, "--steps", "150", "--set", "evaluation.every_steps=0", "--set", "checkpoints.every_steps=0"]
REASON = missing()

pytestmark = [pytest.mark.skipif(REASON is not None, reason=REASON or ""), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"), num_nodes=4)
    os.environ["SLURM_CONF"] = str(cluster.conf)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        del os.environ["SLURM_CONF"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest_in(run("train", *LONGER, "--workers", "2", "--run", "run", cwd=tmp_path_factory.mktemp("whole")))


def submit(*arguments: str) -> str:
    result = run("submit", "slurm", *arguments, "--time", "00:30:00", "--run", "run")
    assert result.returncode == 0, result.stderr
    job = result.stdout.strip()
    assert job.isdigit()
    assert f"tail -F {Path.cwd()}/runs/run/logs/slurm-{job}.log" in result.stderr
    return job


def log_of(job: str) -> str:
    path = Path(f"runs/run/logs/slurm-{job}.log")
    return path.read_text() if path.exists() else ""


def wait_for_step(cluster: Cluster, job: str, step: int) -> None:
    def is_there() -> bool:
        assert cluster.state(job) in ("PENDING", "CONFIGURING", "RUNNING"), log_of(job)
        return Path("runs/run/metrics.jsonl").exists() and any(row["step"] >= step for row in rows_of("run", "train"))

    wait_until(is_there, f"step {step}", 120)


def digest_of(cluster: Cluster, job: str) -> str:
    """Wait until the job has ended; the digest that it printed."""
    wait_until(lambda: cluster.state(job) not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), log_of(job), 120)
    assert cluster.state(job) == "COMPLETED", log_of(job)
    return digest_in(subprocess.CompletedProcess([], 0, log_of(job), ""))


def test_a_job_with_servers_has_the_digest_of_any_other(
    workspace: Path, cluster: Cluster, undisturbed: tuple[str, list[float]]
) -> None:
    """F82: one command with servers, workers and batch size; an evaluator on a node of its own; a log per role."""
    processes = ["--workers", "3", "--strategy", "server", "--servers", "2", "--evaluator"]
    job = submit(*RECIPE, *processes, "--workers-per-node", "2")
    assert digest_of(cluster, job) == undisturbed[0]
    logs = Path("runs/run/logs")
    assert {path.name for path in logs.iterdir()} == {
        *(f"worker-{id_}.log" for id_ in (0, 1, 2)),
        *("server-3.log", "server-4.log", "evaluator-5.log", f"slurm-{job}.log", "sbatch.sh"),
    }
    where = {
        path.stem: re.findall(r"lockstep: step \S+ on (\S+),", path.read_text())
        for role in ("worker", "server", "evaluator")
        for path in logs.glob(f"{role}-*.log")
    }
    assert [len(set(where[name])) for name in sorted(where)] == [1] * 6
    workers = [where[f"worker-{id_}"][0] for id_ in (0, 1, 2)]
    assert workers[0] == workers[2] != workers[1]
    assert {where["server-3"][0], where["server-4"][0]} == set(workers)
    assert where["evaluator-5"][0] not in workers


def test_a_killed_step_is_replaced(workspace: Path, cluster: Cluster, whole: str) -> None:
    job = submit(*LONGER, "--workers", "3", "--strategy", "server", "--servers", "2", "--workers-per-node", "2")
    wait_for_step(cluster, job, 20)
    steps = cluster.steps(job)
    for name in ("lockstep-worker-1", "lockstep-server-3"):
        cluster.call("scancel", "--signal=KILL", steps[name][0])
    assert digest_of(cluster, job) == whole
    deaths = {(row["role"], row["worker"], row["how"]) for row in rows_of("run", "death")}
    assert deaths == {("worker", 1, "was killed by SIGKILL"), ("server", 3, "was killed by SIGKILL")}


def test_a_job_survives_the_loss_of_a_node(workspace: Path, cluster: Cluster, whole: str) -> None:
    """The batch script is on the first node; the last one is lost, and its worker is replaced where there is room."""
    job = submit(*LONGER, "--workers", "3", "--nodes", "3")
    wait_for_step(cluster, job, 20)
    (lost,) = [node for name, (_, node) in cluster.steps(job).items() if name == "lockstep-worker-2"]
    cluster.kill_node(lost)
    try:
        assert digest_of(cluster, job) == whole
    finally:
        cluster.start_node(lost)
    assert [row["worker"] for row in rows_of("run", "death")] == [2], log_of(job)
    wait_until(lambda: cluster.states().count("idle") == len(cluster.nodes), "the node to be back")


def test_a_job_goes_on_after_its_time_limit(workspace: Path, cluster: Cluster, whole: str) -> None:
    """A checkpoint is written, the job waits for its turn again, and the end is that of one that had all the time."""
    job = submit(*LONGER, "--workers", "2", "--nodes", "1")
    wait_for_step(cluster, job, 20)
    cluster.call("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: "stopped by SIGUSR1 with a checkpoint" in log_of(job), "the checkpoint")
    assert digest_of(cluster, job) == whole
    assert "from step" in log_of(job)
    assert not rows_of("run", "death")


def test_a_job_whose_first_node_is_lost_is_queued_again(workspace: Path, cluster: Cluster) -> None:
    """Slurm keeps it, because of the other nodes, but without its script."""
    arguments = ["submit", "slurm", "demo", "--workers", "2", "--time", "30", "--dry-run", "--launch"]
    script = run(*arguments, "sh -c 'echo on $SLURMD_NODENAME; sleep 1000'").stdout
    Path("runs/demo-1/logs").mkdir(parents=True)
    Path("job.sh").write_text(script.replace("while sleep 60", "while sleep 1"))
    job = cluster.call("sbatch", "--parsable", "job.sh").strip()
    log = Path(f"runs/demo-1/logs/slurm-{job}.log")
    wait_until(lambda: log.exists() and "on n" in log.read_text(), "the start")
    (lost,) = re.findall("on (n.)", log.read_text())
    wait_until(
        lambda: any(one.name() == "sleep" for one in cluster.processes(SLURM_JOB_ID=job, SLURM_STEP_ID="0")),
        "what watches the first node",
    )
    cluster.kill_node(lost, is_noticed=True)
    try:
        wait_until(lambda: log.read_text().count("on n") == 2, "the second start")
    finally:
        cluster.start_node(lost)
        cluster.call("scancel", job)
    wait_until(lambda: cluster.states().count("idle") == len(cluster.nodes), "the node to be back")


def test_a_cancelled_job_leaves_a_checkpoint(workspace: Path, cluster: Cluster) -> None:
    """TERM goes to every process of the job: the workers wait for the supervisor, which asks for a checkpoint."""
    job = submit(*LONGER, "--steps", "100000", "--workers", "2", "--nodes", "1")
    wait_for_step(cluster, job, 20)
    cluster.call("scancel", job)
    wait_until(lambda: cluster.state(job) == "CANCELLED", "the end of the job")
    assert "stopped by SIGTERM with a checkpoint" in log_of(job)
    assert not rows_of("run", "death")


def test_too_few_nodes_are_told_before_anything_is_submitted(workspace: Path, cluster: Cluster) -> None:
    """F82."""
    result = run("submit", "slurm", *RECIPE, "--workers", "2", "--time", "30", "--partition", "small")
    assert result.returncode == 2
    assert result.stderr == (
        "lockstep: the job needs 2 nodes, and the partition small has 1: take fewer --workers, more with "
        "--workers-per-node, or another --partition\n"
    )
    refused = run("submit", "slurm", *RECIPE, "--workers", "2", "--time", "30", "--sbatch=--mem=999G")
    assert refused.returncode == 2
    assert refused.stderr.startswith("lockstep: nothing was submitted, sbatch says: ")
    assert not list(workspace.glob("runs/*"))
    assert not cluster.call("squeue", "--noheader")


def test_sbatch_reads_names_as_they_are_meant(workspace: Path, cluster: Cluster) -> None:
    name = """it's a "good" 100%j run"""
    result = run("submit", "slurm", "demo", "--workers", "1", "--time", "30", "--run", name, "--launch", "true")
    assert result.returncode == 0, result.stderr
    job = result.stdout.strip()
    wait_until(lambda: cluster.state(job) == "COMPLETED", "the end of the job")
    assert (workspace / "runs" / name / "logs" / f"slurm-{job}.log").exists()
    assert cluster.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%j").strip() == name


def test_ranks_that_srun_has_started(
    workspace: Path, cluster: Cluster, allocation: str, undisturbed: tuple[str, list[float]]
) -> None:
    """The engine `env` finds rank, world and host in the variables of a real srun."""
    srun = ["srun", "--nodes=1", "--ntasks=3", "--overcommit", "--mem=0", sys.executable, "-m", "lockstep", "train"]
    options = ["--engine", "env", "--device", "cpu", "--strategy", "server", "--servers", "1", "--run", "run"]
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run([*srun, *RECIPE, *options], env=variables, capture_output=True, text=True, timeout=200)
    assert digest_in(result) == undisturbed[0]
    assert rows_of("run", "generation")[0]["workers"] == 2


# The engine by itself


@pytest.fixture
def allocation(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process in an allocation of three nodes, with all their CPUs and GPUs."""
    variables = cluster.allocate(3)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    job = variables["SLURM_JOB_ID"]
    try:
        yield job
    finally:
        cluster.call("scancel", job)
        wait_until(lambda: cluster.states().count("idle") == len(cluster.nodes), "idle nodes")


class Ends:
    """What an engine reports."""

    def __init__(self) -> None:
        self.ended: dict[int, tuple[str, bool]] = {}
        self.notes: list[str] = []

    def __call__(self, id_: int, how: str, is_death: bool) -> None:
        self.ended[id_] = (how, is_death)

    async def wait(self, *ids: int) -> None:
        deadline = time.monotonic() + 60
        while not self.ended.keys() >= set(ids):
            assert time.monotonic() < deadline, (self.ended, self.notes)
            await asyncio.sleep(0.05)


def shell(id_: int, script: str, role: Role = "worker") -> Command:
    return Command(id_, role, ["sh", "-c", script], {"LOCKSTEP_TOKEN": "secret"}, Path(f"{role}-{id_}.log"))


def with_engine(site: Site, work: Callable[[Slurm], Awaitable[None]]) -> None:
    async def body() -> None:
        engine = Slurm(site)
        await engine.open()
        try:
            await work(engine)
        finally:
            await engine.close(0)

    asyncio.run(body())


def test_how_steps_end(workspace: Path, allocation: str) -> None:
    """Its own exit code is the program's; a signal is a death. The token is in the environment alone."""
    ends = Ends()

    async def work(engine: Slurm) -> None:
        assert engine.host == "127.0.0.1"
        scripts = ["exit 0", "exit 3", "kill -SEGV $$", 'echo "$LOCKSTEP_TOKEN $OWN"']
        await asyncio.gather(*(engine.start(shell(id_, script), ends) for id_, script in enumerate(scripts)))
        await ends.wait(0, 1, 2, 3)

    with_engine(Site(num_workers=4), work)
    assert ends.ended[0] == ("ended with exit code 0", False)
    assert ends.ended[1] == ("ended with exit code 3", False)
    assert ends.ended[2] == ("was killed by SIGSEGV", True)
    assert "\nsecret" in Path("worker-3.log").read_text()


def test_a_killed_process_ends_with_all_that_it_started(workspace: Path, allocation: str, cluster: Cluster) -> None:
    """Also one that is still being started, and one whose srun was killed."""
    ends = Ends()

    async def work(engine: Slurm) -> None:
        await asyncio.gather(*(engine.start(shell(id_, "sleep 1000 & echo $! $$; wait"), ends) for id_ in (0, 1)))
        logs = [Path("worker-0.log"), Path("worker-1.log")]
        await asyncio.to_thread(wait_until, lambda: all(log.read_text().count("\n") == 2 for log in logs), "the pids")
        engine.kill(0)
        os.killpg(engine._steps[1].srun.pid, 9)  # type: ignore[union-attr]
        for id_, seconds in ((2, 0.0), (3, 0.03), (4, 0.1)):
            # One process, as a worker is: what forks in the moment of a kill is lost to Slurm's proctrack/linuxproc.
            starting = asyncio.create_task(engine.start(shell(id_, "exec sleep 1000"), ends))
            await asyncio.sleep(seconds)
            engine.kill(id_)
            await starting
        await ends.wait(0, 1)

    with_engine(Site(num_workers=3), work)
    assert ends.ended[0] == ("was killed by SIGKILL", True)
    assert ends.ended[1] == ("lost its srun, which was killed by SIGKILL", True)
    for id_ in (0, 1):
        for pid in Path(f"worker-{id_}.log").read_text().splitlines()[1].split():
            wait_until(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists(), f"the end of {pid}")  # type: ignore[misc]
    wait_until(lambda: not cluster.processes(SLURM_JOB_ID=allocation), "the end of all processes")


def test_every_worker_has_a_gpu_of_its_own_that_slurm_chose(workspace: Path, allocation: str) -> None:
    """F60: and servers have none."""
    ends = Ends()
    say = "echo has $SLURMD_NODENAME:${CUDA_VISIBLE_DEVICES:-none}"

    async def work(engine: Slurm) -> None:
        commands = [shell(id_, f"{say}; sleep 1000") for id_ in range(6)]
        commands += [shell(id_, f"{say}; sleep 1000", "server") for id_ in (6, 7)]
        await asyncio.gather(*(engine.start(command, ends) for command in commands))

    with_engine(Site(num_workers=6, num_servers=2, uses_gpus=True), work)
    workers = [re.search("has (.*)", Path(f"worker-{id_}.log").read_text())[1] for id_ in range(6)]  # type: ignore[index]
    nodes = sorted({worker.split(":")[0] for worker in workers})
    assert sorted(workers) == sorted(f"{node}:{gpu}" for node in nodes for gpu in (0, 1))
    assert len(nodes) == 3
    assert ":none" in Path("server-6.log").read_text()


def test_a_process_waits_for_room_and_a_lost_node_is_not_used(
    workspace: Path, allocation: str, cluster: Cluster
) -> None:
    """A node is lost while another process waits: it begins where one ends, and not there."""
    ends = Ends()
    long = "echo on $SLURMD_NODENAME; sleep 1000"

    async def work(engine: Slurm) -> None:
        await asyncio.gather(*(engine.start(shell(id_, long), ends) for id_ in range(6)))
        lost = engine._steps[2].node
        there = [id_ for id_, step in engine._steps.items() if step.node == lost]
        await asyncio.to_thread(cluster.kill_node, lost, True)
        try:
            starting = asyncio.create_task(engine.start(shell(6, long), ends))
            await ends.wait(*there)
            assert not starting.done()
            engine.kill(next(id_ for id_ in range(6) if id_ not in there))
            await asyncio.wait_for(starting, 60)
            assert engine._steps[6].node != lost
        finally:
            await asyncio.to_thread(cluster.start_node, lost)
        assert [ends.ended[id_] for id_ in there] == [(f"was lost with node {lost}", True)] * 2

    with_engine(Site(num_workers=6, note=ends.notes.append), work)
    assert any("is lost" in note for note in ends.notes), ends.notes


def test_what_slurm_will_never_start_is_an_error(workspace: Path, allocation: str) -> None:
    async def work(engine: Slurm) -> None:
        engine.site = Site(num_workers=1, cpus_per_worker=99)
        with pytest.raises(OSError, match="Unable to create step"):
            await engine.start(shell(0, "exit 0"), Ends())

    with_engine(Site(num_workers=1), work)


def test_too_few_nodes_in_an_allocation(workspace: Path, allocation: str) -> None:
    """F82."""
    with pytest.raises(UserError, match="has room for 6 workers with 1 CPU each, and 7 are needed"):
        asyncio.run(Slurm(Site(num_workers=7)).open())
