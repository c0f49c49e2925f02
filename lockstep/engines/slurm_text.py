"""What Slurm's commands and variables say, as values, and what is said to them. Pure; `slurm.py` calls the commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engines import Command, Site
from lockstep.engines.local import describe_status

LEFT = ("down", "fail", "unknown", "future", "power", "not_responding", "reboot_issued")
"""States of a node, or marks on one, with which it takes no process."""
NO_NEW_JOBS = (*LEFT, "drain", "maint")
"""States of a node in which a job that has yet to begin will not get it."""
OUT_OF_MEMORY = 253
"""srun's exit code when the kernel ended a process for want of memory."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_JOB_ID")
"""The variables of Slurm that its commands are called with: the others would be taken for options of theirs."""
PREFIXES = ("SLURM_", "SRUN_", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_", "SCANCEL_")
SRUN_LINE = re.compile(r"^(?:srun|slurmstepd)(?:-\S+)?: (?:error|fatal): (.*)$", re.MULTILINE)
PASSING = re.compile(
    r"launch|communication|connect|timed out|contact|node fail|not in the current allocation", re.IGNORECASE
)
BEGINNING = re.compile(r"^lockstep: step (\d+\.\d+) on ", re.MULTILINE)
BEGIN = (
    'trap "" TERM; '
    'echo "lockstep: step $SLURM_JOB_ID.$SLURM_STEP_ID on $SLURMD_NODENAME, GPU ${CUDA_VISIBLE_DEVICES:-none}"; '
    'exec "$@"'
)
"""What every step begins with. Slurm sends TERM to all steps of a job that is cancelled or out of time: what becomes of
a process is the supervisor's business, which asks for a checkpoint first."""


@dataclass(frozen=True)
class NodeFacts:
    """What `scontrol show node` says of one."""

    address: str
    state: str
    threads_per_core: int = 1

    @property
    def is_up(self) -> bool:
        return takes_processes(self.state)


def takes_processes(state: str) -> bool:
    """Whether a node in this state, as scontrol or sinfo writes it, can start another process of a job it belongs to.

    `*` and NOT_RESPONDING mean that it does not answer; `ALLOCATED+DRAIN` that it takes no other job.
    """
    return not _is_any(LEFT, state)


def takes_jobs(state: str) -> bool:
    """Whether a new job may get a node in this state, now or when another one has ended."""
    return not _is_any(NO_NEW_JOBS, state)


def _is_any(marks: tuple[str, ...], state: str) -> bool:
    return "*" in state or any(part.startswith(marks) for part in state.lower().split("+"))


def parse_nodes(text: str) -> dict[str, NodeFacts]:
    """The nodes in what `scontrol --oneliner show node` prints."""
    nodes = {}
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "NodeName" in words:
            name = words["NodeName"]
            address, threads = words.get("NodeAddr", name), words.get("ThreadsPerCore", "1")
            nodes[name] = NodeFacts(address, words.get("State", "UNKNOWN"), int(threads) if threads.isdigit() else 1)
    return nodes


def parse_counts(text: str) -> list[int]:
    """One number per node from what SLURM_JOB_CPUS_PER_NODE holds, such as `4(x2),2`."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a list of counts such as 4(x2),2")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def parse_steps(text: str, name: str) -> list[str]:
    """The numbers of the steps with this name in what `squeue --steps --format='%i %j'` prints."""
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    return [row[0] for row in rows if len(row) == 2 and row[1].strip() == name]


@dataclass(frozen=True)
class Partition:
    """How many nodes a partition has, and how many of them a job can get."""

    nodes: int
    usable: int


def parse_partitions(text: str) -> tuple[dict[str, Partition], str | None]:
    """The partitions in what `sinfo --format='%P|%D|%T'` prints, and the name of the usual one."""
    found: dict[str, Partition] = {}
    usual = None
    for line in text.splitlines():
        name, count, state = (part.strip() for part in line.split("|"))
        if name.endswith("*"):
            name = usual = name.removesuffix("*")
        before, number = found.get(name, Partition(0, 0)), int(count)
        found[name] = Partition(before.nodes + number, before.usable + (number if takes_jobs(state) else 0))
    return found, usual


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what Slurm's commands would take for options: a step is not to inherit the number of tasks of its job."""
    return {key: value for key, value in environment.items() if key in KEPT or not key.startswith(PREFIXES)}


def step_name(command: Command, owner: int) -> str:
    """Tells the steps of one command `lockstep` from those of another in the same allocation."""
    return f"lockstep-{command.role}-{command.id}.{owner}"


def step_arguments(command: Command, site: Site, node: str, name: str, shares: bool = False) -> list[str]:
    """The srun of one process. Nothing secret is in here: that is in the environment, which srun hands on.

    `shares` lets a worker have cores that Slurm takes for those of others.
    """
    cores = ["--exact", f"--cpus-per-task={cpus_per_worker(site)}", *(["--overlap"] if shares else [])]
    if command.role == "server" or (command.role == "evaluator" and site.evaluator == "shared"):
        cores = ["--overlap"]
    gpus = "--gpus-per-task=1" if site.uses_gpus and command.role != "server" else "--gres=none"
    return [
        *["srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *cores, gpus, "--mem=0"],
        *["--no-kill=off", "--mpi=none", "--export=ALL", "--input=none", "--unbuffered", "--quiet"],
        *[f"--job-name={name}", "sh", "-c", BEGIN, "lockstep", *command.arguments],
    ]


def cpus_per_worker(site: Site) -> int:
    return site.cpus_per_worker or site.threads


def step_number(log: str) -> str | None:
    """The number of the step whose output this is, once it runs."""
    match = BEGINNING.search(log)
    return None if match is None else match[1]


def complaints(log: str) -> list[str]:
    """What srun itself had to say."""
    return SRUN_LINE.findall(log)


def last_words(log: str) -> str:
    """Why srun gave up, as it says."""
    lines = complaints(log) or log.strip().splitlines()
    return lines[-1] if lines else "srun said nothing"


def is_passing(log: str) -> bool:
    """Whether what kept srun from starting a process lies in a node or on the way to it, and not in what was asked."""
    return PASSING.search("\n".join(complaints(log))) is not None


def verdict(status: int, log: str, node: str, node_is_up: bool) -> tuple[str, bool]:
    """How a process ended, from how its srun did: in words, and whether it died or ended by itself."""
    said = complaints(log)
    if not node_is_up or any("Node failure" in line for line in said):
        return f"was lost with node {node}", True
    if status < 0:
        return f"lost its srun, which {describe_status(status)}", True
    if status == OUT_OF_MEMORY:
        return "was killed for want of memory", True
    if 128 < status <= 128 + 64:
        return describe_status(128 - status), True
    if status and said and "exited with exit code" not in said[-1].lower():
        return f"was lost by srun: {said[-1]}", True
    return describe_status(status), False
