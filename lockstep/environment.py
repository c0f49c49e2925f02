"""What a launcher tells a process in its environment: its rank, how many there are, and where the first one is.

Pure: a table of variables, and what follows from their values. Who uses it are `engines/env.py` and `rank.py`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.errors import UserError

WAIT_SECONDS = 120.0
"""How long ranks wait for each other at the start, unless LOCKSTEP_WAIT says otherwise."""
FIRST_PORT, NUM_PORTS = 20000, 12000
"""Where ports are that are derived from a job's number: below those that systems give to connections."""

Variables = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """The variables of one launcher; of several names the first that is set counts."""

    name: str
    mark: str
    """Set by this launcher, and by none that it is started by."""
    rank: tuple[str, ...]
    world: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    local_world: tuple[str, ...] = ()
    """How many of the processes are on this host."""
    nodes: tuple[str, ...] = ()
    """On how many hosts they are."""
    hosts: tuple[str, ...] = ()
    """Slurm's list of these hosts, of which the first has rank 0."""
    job: tuple[str, ...] = ()
    """What sets this job apart from others; all of them together."""
    tells_all: bool = True
    """Whether it asks all processes to end, when it asks one: then only rank 0 listens to that."""
    how_to_set: str = "for every process"
    """How a user gives all processes a variable."""


LAUNCHERS = (
    Launcher(
        name="torchrun",
        mark="TORCHELASTIC_RUN_ID",
        rank=("RANK",),
        world=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_world=("LOCAL_WORLD_SIZE",),
        job=("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    ),
    Launcher(
        name="Open MPI's mpirun",
        mark="OMPI_COMM_WORLD_RANK",
        rank=("OMPI_COMM_WORLD_RANK",),
        world=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_world=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE",),
        how_to_set="with mpirun -x",
    ),
    Launcher(
        name="MPICH's mpiexec",
        mark="MPI_LOCALRANKID",
        rank=("PMI_RANK",),
        world=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_world=("MPI_LOCALNRANKS",),
        how_to_set="with mpiexec -genv",
    ),
    Launcher(
        name="srun",
        mark="SLURM_STEP_ID",
        rank=("SLURM_PROCID",),
        world=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local_rank=("SLURM_LOCALID",),
        nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        hosts=("SLURM_STEP_NODELIST", "SLURM_NODELIST"),
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        how_to_set="before srun, with export",
    ),
    Launcher(
        name="whoever set RANK",
        mark="RANK",
        rank=("RANK",),
        world=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_world=("LOCAL_WORLD_SIZE",),
        tells_all=False,
    ),
    Launcher(
        name="an indexed Job of Kubernetes",
        mark="JOB_COMPLETION_INDEX",
        rank=("JOB_COMPLETION_INDEX",),
        world=("WORLD_SIZE",),
        tells_all=False,
        how_to_set="in the Job's template",
    ),
)
"""From the innermost to the outermost: srun starts torchrun or mpirun on every host, and never the other way round."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a process stands among those that a launcher started."""

    launcher: str
    rank: int
    world: int
    world_name: str
    """The variable that says so."""
    local_rank: int
    """Its number on its host."""
    is_one_host: bool
    address: str
    """Rank 0's host, as the others know it."""
    port: int
    has_store: bool
    """Whether a store of torchrun's listens on that port, so that rank 0 cannot."""
    tells_all: bool
    token: str = field(repr=False)
    """What ranks of one job know."""
    wait_seconds: float


def place(variables: Variables) -> Place:
    """What the innermost launcher says; UserError where that is nothing, or contradicts itself."""
    launcher = next((one for one in LAUNCHERS if variables.get(one.mark)), None)
    if launcher is None:
        raise UserError(
            "--engine env is for processes that a launcher has started, and none of its variables is set "
            f"({', '.join(one.mark for one in LAUNCHERS)}): start it as in `torchrun --nproc-per-node 2 -m -- lockstep "
            "train ... --engine env`, or leave --engine env out"
        )
    rank_name, rank = _required(variables, launcher.rank, launcher)
    world_name, world = _required(variables, launcher.world, launcher)
    if world < 1 or rank >= world:
        raise UserError(f"{rank_name}={rank} does not fit {world_name}={world}: ranks are 0 to {world_name} - 1")
    _refuse_contradiction(variables, "RANK", rank_name, rank)
    _refuse_contradiction(variables, "WORLD_SIZE", world_name, world)
    address = variables.get("MASTER_ADDR") or _first_of(variables, launcher.hosts)
    is_one_host = _is_one_host(variables, launcher, world_name, world, address)
    if address is None and not is_one_host:
        raise UserError(
            f"{world_name}={world} processes are on several hosts, and nothing says on which of them rank 0 is: set "
            f"MASTER_ADDR to that host's address {launcher.how_to_set}"
        )
    address = "127.0.0.1" if is_one_host or address is None else address
    job = "/".join(variables.get(name, "") for name in launcher.job)
    port = _port(variables, launcher, job)
    _, local_rank = _number(variables, launcher.local_rank)
    return Place(
        launcher=launcher.name,
        rank=rank,
        world=world,
        world_name=world_name,
        local_rank=local_rank if local_rank is not None else rank if is_one_host else 0,
        is_one_host=is_one_host,
        address=address,
        port=port,
        has_store=launcher.name == "torchrun" and variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        tells_all=launcher.tells_all,
        token=variables.get("LOCKSTEP_TOKEN") or _hash("token", launcher.name, job, str(port), str(world)),
        wait_seconds=_wait_seconds(variables),
    )


def count_workers(place: Place, servers: int, asked: int | None) -> int:
    """How many of the ranks are workers: those that are no servers, and `--workers` must say the same."""
    workers = place.world - servers
    if workers < 1:
        raise UserError(
            f"{place.world_name}={place.world} and --servers {servers} leave no worker: start at least {servers + 1} "
            "processes"
        )
    if asked is not None and asked != workers:
        count = f"{place.world_name}={place.world} processes" + (f", {servers} of them servers," if servers else "")
        raise UserError(f"{count} are {workers} workers, and not --workers {asked}: leave --workers out")
    return workers


def first_host(listing: str) -> str:
    """The first of Slurm's list of hosts: `n1` of `n[1-3,7],m2`, `rack0-n08` of `rack[0-1]-n[08-11]`."""
    first = re.split(r",(?![^\[]*\])", listing.strip())[0]
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _number(variables: Variables, names: tuple[str, ...]) -> tuple[str, int | None]:
    """The first of these variables that is set, and its value."""
    for name in names:
        if text := variables.get(name):
            if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
                raise UserError(
                    f"{name}={text!r} is no whole number from 0: the launcher, or a script, has set it wrong"
                )
            return name, int(text)
    return names[0] if names else "", None


def _required(variables: Variables, names: tuple[str, ...], launcher: Launcher) -> tuple[str, int]:
    name, number = _number(variables, names)
    if number is None:
        raise UserError(f"{launcher.mark} is set, and {name} is not: set both {launcher.how_to_set}")
    return name, number


def _first_of(variables: Variables, names: tuple[str, ...]) -> str | None:
    return next((first_host(variables[name]) for name in names if variables.get(name)), None)


def _refuse_contradiction(variables: Variables, common: str, name: str, number: int) -> None:
    """What a user's script says beside the launcher's own variables must be the same."""
    _, other = _number(variables, (common,))
    if other is not None and other != number:
        raise UserError(f"{common}={other} and {name}={number} contradict each other: unset {common}")


def _is_one_host(variables: Variables, launcher: Launcher, world_name: str, world: int, address: str | None) -> bool:
    """Whether all processes are on this host, as far as the launcher tells."""
    name, here = _number(variables, launcher.local_world)
    if here is not None and here > world:
        raise UserError(f"{name}={here} on one host is more than {world_name}={world} on all")
    _, nodes = _number(variables, launcher.nodes)
    if here == world or nodes == 1 or world == 1:
        return True
    # In a pod the loopback is what some operators tell rank 0 alone.
    return address is not None and is_loopback(address) and "KUBERNETES_SERVICE_HOST" not in variables


def _port(variables: Variables, launcher: Launcher, job: str) -> int:
    _, port = _number(variables, ("MASTER_PORT",))
    if port is None and not job.strip("/"):
        raise UserError(
            f"{launcher.mark} is set, and MASTER_PORT is not: set it to a free port of rank 0's host "
            f"{launcher.how_to_set}"
        )
    if port is None:
        return FIRST_PORT + int(_hash("port", launcher.name, job), 16) % NUM_PORTS
    if not 0 < port < 1 << 16:
        raise UserError(f"MASTER_PORT={port} is no port: take one from 1024 to 65535")
    return port


def _wait_seconds(variables: Variables) -> float:
    text = variables.get("LOCKSTEP_WAIT")
    try:
        seconds = WAIT_SECONDS if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"LOCKSTEP_WAIT={text!r} is no number of seconds")
    return seconds


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(("lockstep", *parts)).encode()).hexdigest()
