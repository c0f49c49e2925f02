"""Strategies, by name: how workers agree. The table can be read without importing torch.

A strategy is a file here, an entry in the table, and its test.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.errors import UserError, unknown
from lockstep.rounds import EVERY_STEP, Rounds

if TYPE_CHECKING:
    from lockstep.config import Job, Recipe
    from lockstep.data.source import Source
    from lockstep.membership import Membership
    from lockstep.replica import Replica
    from lockstep.strategies.synchronous import Synchronous


@dataclass(frozen=True)
class Entry:
    """Where a strategy is, and what it promises and takes."""

    place: str
    """module:class"""
    bits: Literal["common", "own", "none"]
    """"common": the digest is that of `allreduce`; "own": one digest for any number of workers, but another one;
    "none": the result is not reproducible."""
    options: tuple[str, ...] = ()
    """Fields of the job that are about this strategy."""
    servers: int = 0
    """Processes beside the workers, where none are asked for."""
    program: str = "lockstep.server"
    """The module that these processes run."""
    servers_hold_state: bool = False
    """Whether weights and optimizer are theirs, and not the workers'."""
    purpose: str = ""


STRATEGIES: dict[str, Entry] = {
    "allreduce": Entry(
        "lockstep.strategies.synchronous:Synchronous", "common", purpose="every worker adds up a slice of the gradients"
    ),
    "server": Entry(
        "lockstep.strategies.served:Served",
        "common",
        options=("servers", "backup", "wait_for"),
        servers=1,
        purpose="parameter servers add up a slice each",
    ),
    "driver": Entry(
        "lockstep.strategies.served:Served", "common", servers=1, purpose="one process collects and hands out"
    ),
    "averaging": Entry(
        "lockstep.strategies.averaging:Averaging",
        "own",
        options=("local_steps", "outer"),
        purpose="every leaf takes steps of its own, then weights are averaged",
    ),
    "async": Entry(
        "lockstep.strategies.asynchronous:Asynchronous",
        "none",
        options=("servers", "max_staleness"),
        servers=1,
        program="lockstep.async_server",
        servers_hold_state=True,
        purpose="servers hold the weights and apply every gradient as it comes",
    ),
}

OPTIONS = {
    "servers": "--servers",
    "backup": "--backup",
    "wait_for": "--late drop",
    "local_steps": "--local-steps",
    "outer": "--outer",
    "max_staleness": "--max-staleness",
}
"""Fields of the job that only some strategies take, and how a user asks for them."""


def check_strategy(name: str) -> None:
    if name not in STRATEGIES:
        raise unknown("strategy", name, STRATEGIES)


def check_options(strategy: str, given: set[str]) -> None:
    """Refuse what was asked for and means nothing to this strategy."""
    for option in sorted(given - set(STRATEGIES[strategy].options)):
        takers = [name for name, entry in STRATEGIES.items() if option in entry.options]
        whose = f"the strategy {takers[0]}" if len(takers) == 1 else f"the strategies {' and '.join(takers)}"
        raise UserError(f"{OPTIONS[option]} is for {whose}, and not for {strategy}: leave it out, or take --strategy")


def bits(job: Job) -> Literal["common", "own", "none"]:
    """What the digest of a job depends on, see `Entry.bits`."""
    return "none" if job.wait_for else STRATEGIES[job.strategy].bits


def rounds(job: Job, num_steps: int) -> Rounds:
    """After how many steps workers exchange anything."""
    return Rounds(job.local_steps, num_steps) if "local_steps" in STRATEGIES[job.strategy].options else EVERY_STEP


def check_same_bits(job: Job, before: Job) -> None:
    """A run that is continued must go on computing what it computed."""

    def computes(job: Job) -> dict[str, object]:
        if bits(job) == "common":
            return {"--strategy": "allreduce, server or driver"}
        own = [
            option
            for option in STRATEGIES[job.strategy].options
            if option not in ("servers", "backup", "max_staleness")
        ]
        return {"--strategy": job.strategy, **{OPTIONS[option]: getattr(job, option) for option in own}}

    if (wanted := computes(before)) != computes(job):
        told = ", ".join(f"{option} {value}" for option, value in wanted.items())
        raise UserError(f"this run was trained otherwise, and would get other bits now: continue it with {told}")


def build(job: Job, recipe: Recipe, source: Source, replica: Replica, membership: Membership) -> Synchronous:
    module, _, name = STRATEGIES[job.strategy].place.partition(":")
    strategy: Synchronous = getattr(importlib.import_module(module), name)(recipe, job, source, replica, membership)
    return strategy
