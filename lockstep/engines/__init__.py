"""Engines, by name: they start commands, report how they end, and know nothing of training."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lockstep.errors import UserError, unknown

Role = Literal["worker", "server", "evaluator"]


@dataclass(frozen=True)
class Command:
    """A process to start."""

    id: int
    role: Role
    arguments: list[str]
    environment: dict[str, str]
    """Added to the environment of the engine."""
    log: Path
    """Where standard output and error go."""


OnExit = Callable[[int, str, bool], None]
"""Called with the command's id, how it ended in words, and whether that was by a signal (a death)."""


def silent(_: str) -> None:
    """For engines that have nobody to tell."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What an engine is told before it starts anything."""

    num_workers: int
    num_servers: int = 0
    evaluator: Literal["none", "own", "shared"] = "none"
    """Whether there is one, and whether it needs a node of its own."""
    min_workers: int | None = None
    """How many must fit at once; None means all."""
    threads: int = 1
    uses_gpus: bool = False
    """Whether every worker needs a GPU."""
    address: str | None = None
    placement: Literal["any", "spread", "pack"] = "any"
    cpus_per_worker: int | None = None
    listen: str | None = None
    files: tuple[Path, ...] = ()
    """Directories of the user's own code that processes import from."""
    note: Callable[[str], None] = silent
    """Shows a line to the user."""


class Engine(Protocol):
    """Where the processes of a job run."""

    host: str
    """The address on which the supervisor must listen for this engine's processes; known once it is open."""
    assigns_devices: bool
    """Whether a scheduler gives every process its GPU; otherwise the supervisor does."""

    async def open(self) -> None:
        """Get hold of whatever the processes will run on. Raises UserError if that cannot be."""

    async def start(self, command: Command, on_exit: OnExit) -> None:
        """Returns when the process runs, which may take until there is room for it."""

    def kill(self, id_: int) -> None:
        """End a process at once, with all that it started; one that waits for room is not started at all."""

    async def close(self, grace_seconds: float) -> None:
        """Wait a little for processes that were asked to end, then kill the rest. Afterwards none is left."""


@dataclass(frozen=True)
class Entry:
    purpose: str
    build: Callable[[Site], Engine]
    options: frozenset[str] = frozenset()
    """Which of OPTIONS it understands."""
    is_elastic: bool = True
    """Whether it can start processes at any time; otherwise whoever has started them decides who lives, and a job ends
    when one of them dies."""
    is_kept: bool = True
    """Whether a run is continued on it where nothing else is asked for."""
    package: str = ""
    """What it needs that is not always installed, which is also the name of the extra that installs it."""
    is_elsewhere: bool = False
    """Whether processes run on hosts whose devices this one does not see."""


def _local(site: Site) -> Engine:
    if site.listen is not None:
        from lockstep.engines.hosts import Hosts

        return Hosts(site)
    from lockstep.engines.local import Local

    return Local(site)


def _slurm(site: Site) -> Engine:
    from lockstep.engines.slurm import Slurm

    return Slurm(site)


def _env(site: Site) -> Engine:
    from lockstep.engines.env import Env

    return Env(site)


def _ray(site: Site) -> Engine:
    # Read when it is imported: no pages of Ray's own logs when a node is lost, no stack when a signal stops the run.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    from lockstep.engines.ray import Ray

    return Ray(site)


ENGINES: dict[str, Entry] = {
    "local": Entry("processes on this machine, and on hosts that join", _local, options=frozenset({"listen"})),
    "ray": Entry(
        "a Ray cluster",
        _ray,
        frozenset({"address", "placement", "cpus_per_worker"}),
        package="ray",
        is_elsewhere=True,
    ),
    "env": Entry("processes that torchrun, mpirun or srun has started", _env, is_elastic=False, is_kept=False),
    "slurm": Entry("steps of a Slurm job", _slurm, frozenset({"cpus_per_worker"}), is_kept=False),
}

OPTIONS = {
    "address": "--address",
    "placement": "--spread and --pack",
    "cpus_per_worker": "--cpus-per-worker",
    "listen": "--listen",
}
"""What only some engines understand: fields of the job, and how they are written."""


def check_engine(name: str, given: Collection[str] = ()) -> None:
    """Whether there is such an engine, and whether it understands the options that were given."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    package = ENGINES[name].package
    if package and importlib.util.find_spec(package) is None:
        raise UserError(f"--engine {name} needs a package that is not here: pip install 'lockstep-train[{package}]'")
    for option in given:
        if option not in ENGINES[name].options:
            others = [other for other, entry in ENGINES.items() if option in entry.options]
            hint = f"it belongs to --engine {' or '.join(others)}" if others else "leave it out"
            raise UserError(f"{OPTIONS[option]} means nothing with --engine {name}: {hint}")
