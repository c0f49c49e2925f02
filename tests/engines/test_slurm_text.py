"""What Slurm's commands say and are told; the samples are of Slurm 22.05 and 23.11."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engines import Command, Site
from lockstep.engines import slurm_text as text

COMMAND = Command(3, "worker", ["python", "-m", "lockstep.worker"], {"LOCKSTEP_TOKEN": "secret"}, Path("log"))
SITE = Site(num_workers=4, threads=2)


def test_nodes_as_scontrol_shows_them() -> None:
    shown = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=2 CPUTot=2 NodeAddr=10.0.0.1 NodeHostName=host "
        "OS=Linux 6.1.0 #1 SMP State=MIXED ThreadsPerCore=2 Reason=a b [root@2024]\n"
        "NodeName=n2 NodeAddr=10.0.0.2 State=DOWN*+CLOUD ThreadsPerCore=1\n\n"
    )
    nodes = text.parse_nodes(shown)
    assert nodes == {"n1": text.NodeFacts("10.0.0.1", "MIXED", 2), "n2": text.NodeFacts("10.0.0.2", "DOWN*+CLOUD", 1)}
    assert nodes["n1"].is_up
    assert not nodes["n2"].is_up


@pytest.mark.parametrize(
    ("state", "running", "new"),
    [
        ("ALLOCATED", True, True),
        ("MIXED+PLANNED", True, True),
        ("ALLOCATED+DRAIN", True, False),
        ("ALLOCATED*", False, False),
        ("MIXED+NOT_RESPONDING", False, False),
        ("DOWN", False, False),
        ("idle~", True, True),
        ("drained", True, False),
        ("FAIL", False, False),
        ("UNKNOWN", False, False),
    ],
)
def test_states_of_nodes(state: str, running: bool, new: bool) -> None:
    """A node that drains takes processes of the job it has, and no other job."""
    assert text.takes_processes(state) == running
    assert text.takes_jobs(state) == new


def test_counts_per_node() -> None:
    assert text.parse_counts("2") == [2]
    assert text.parse_counts("4(x2),2,1(x3)") == [4, 4, 2, 1, 1, 1]
    with pytest.raises(ValueError, match="list of counts"):
        text.parse_counts("")


def test_steps_are_found_by_their_name() -> None:
    listing = "17.batch batch\n17.0 lockstep-worker-1.99\n17.10 lockstep-worker-11.99\n17.2 lockstep-worker-1.98\n"
    assert text.parse_steps(listing, "lockstep-worker-1.99") == ["17.0"]
    assert text.parse_steps("", "lockstep-worker-1.99") == []


def test_partitions() -> None:
    listing = "debug*|2|idle\ndebug*|1|allocated\ndebug*|1|down*\nlong|4|drained\nlong|8|mixed\n"
    partitions, usual = text.parse_partitions(listing)
    assert partitions == {"debug": text.Partition(4, 3), "long": text.Partition(12, 8)}
    assert usual == "debug"
    assert text.parse_partitions("") == ({}, None)


def test_commands_do_not_inherit_the_options_of_the_job() -> None:
    """A step would want as many tasks and GPUs as the whole job."""
    given = {"SLURM_NTASKS": "6", "SLURM_GPUS_PER_NODE": "2", "SRUN_EXPORT_ENV": "NONE", "SQUEUE_FORMAT": "%i"}
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "17", "PATH": "/bin", "LOCKSTEP_TOKEN": "secret"}
    assert text.clean_environment({**given, **kept}) == kept


def test_a_worker_has_cores_of_its_own_and_a_server_shares() -> None:
    """F82, and F60: one device per process, which Slurm chooses."""
    worker = text.step_arguments(COMMAND, SITE, "n2", "name")
    assert {"--nodelist=n2", "--ntasks=1", "--exact", "--cpus-per-task=2", "--gres=none"} < set(worker)
    assert worker[-3:] == COMMAND.arguments
    assert not any("secret" in word for word in worker)
    with_gpus = Site(num_workers=4, uses_gpus=True, cpus_per_worker=3, evaluator="shared")
    assert {"--exact", "--cpus-per-task=3", "--gpus-per-task=1"} < set(
        text.step_arguments(COMMAND, with_gpus, "n2", "name")
    )
    server = text.step_arguments(Command(4, "server", ["s"], {}, Path("log")), with_gpus, "n2", "name")
    assert {"--overlap", "--gres=none"} < set(server)
    assert not any(word.startswith(("--exact", "--cpus", "--gpus")) for word in server)
    evaluator = text.step_arguments(Command(5, "evaluator", ["e"], {}, Path("log")), with_gpus, "n2", "name")
    assert {"--overlap", "--gpus-per-task=1"} < set(evaluator)


def test_what_the_log_of_a_step_begins_with() -> None:
    assert text.step_number("srun: error: x\nlockstep: step 17.3 on n2, GPU none\nhello\n") == "17.3"
    assert text.step_number("hello\n") is None


@pytest.mark.parametrize(
    ("status", "log", "is_up", "how", "is_death"),
    [
        (0, "", True, "ended with exit code 0", False),
        (1, "Traceback\nsrun: error: n2: task 0: Exited with exit code 1\n", True, "ended with exit code 1", False),
        (137, "srun: error: n2: task 0: Killed\n", True, "was killed by SIGKILL", True),
        (139, "srun: error: n2: task 0: Segmentation fault\n", True, "was killed by SIGSEGV", True),
        (253, "slurmstepd: error: Detected 1 oom-kill event(s)\n", True, "was killed for want of memory", True),
        (1, "srun: error: Node failure on n2\n", True, "was lost with node n2", True),
        (143, "", False, "was lost with node n2", True),
        (-9, "", True, "lost its srun, which was killed by SIGKILL", True),
        (
            1,
            "srun: error: Timed out waiting for job step\n",
            True,
            "was lost by srun: Timed out waiting for job step",
            True,
        ),
    ],
)
def test_how_a_process_ended(status: int, log: str, is_up: bool, how: str, is_death: bool) -> None:
    """What the program did itself is its own mistake; what happened to it is a death."""
    assert text.verdict(status, log, "n2", is_up) == (how, is_death)


def test_why_a_step_did_not_begin() -> None:
    lost = "srun: error: Task launch for StepId=17.3 failed on node n2: Communication connection failure\n"
    wrong = "srun: error: Unable to create step for job 17: Invalid generic resource (gres) specification\n"
    assert text.is_passing(lost)
    assert not text.is_passing(wrong)
    assert not text.is_passing("srun: unrecognized option '--overlap'\n")
    assert text.last_words(wrong).endswith("Invalid generic resource (gres) specification")
    assert text.last_words("srun: unrecognized option '--overlap'\n") == "srun: unrecognized option '--overlap'"
    assert text.last_words("") == "srun said nothing"
