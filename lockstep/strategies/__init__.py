"""Strategies, by name: how workers agree. The table can be read without importing torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import unknown

if TYPE_CHECKING:
    from lockstep.config import Recipe
    from lockstep.data.source import Source
    from lockstep.membership import Membership
    from lockstep.replica import Replica
    from lockstep.strategies.synchronous import Synchronous


@dataclass(frozen=True)
class Entry:
    """Where a strategy is, who owns the slices in it, and whether its bits are those of `allreduce`."""

    module: str
    owners: str
    synchronous: bool


STRATEGIES: dict[str, Entry] = {
    "allreduce": Entry("lockstep.strategies.synchronous", "allreduce", synchronous=True),
}


def check_strategy(name: str) -> None:
    if name not in STRATEGIES:
        raise unknown("strategy", name, STRATEGIES)


def build(name: str, recipe: Recipe, source: Source, replica: Replica, membership: Membership) -> Synchronous:
    entry = STRATEGIES[name]
    module = importlib.import_module(entry.module)
    strategy: Synchronous = module.Synchronous(recipe, source, replica, membership, getattr(module, entry.owners))
    return strategy
