"""Putting a new generation together from what its members promised: who stays, who joins, who computes what. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lockstep.rounds import EVERY_STEP, Rounds
from lockstep.supervisor.sharing import share

NO_STATE = -1
"""The step of a worker that has nothing to train from yet."""

Promise = tuple[int, tuple[int, ...]]
"""A step, and the leaves of it that are held."""


@dataclass
class Forming:
    """A generation that has been proposed and not yet announced."""

    number: int
    awaited: set[int]
    promises: dict[int, Promise] = field(default_factory=dict)


@dataclass(frozen=True)
class Formed:
    """Who takes part from which step on, and with which leaves of that step."""

    step: int
    stay: list[int]
    joiners: list[int]
    leaves: dict[int, set[int]]
    num_missing: int
    """Leaves that somebody has still to compute."""
    num_recomputed: int
    """Of those, what someone who is dead had been given."""

    @property
    def ids(self) -> list[int]:
        return [*self.stay, *self.joiners]


def form(
    promises: dict[int, Promise],
    members: list[int],
    ready: Collection[int],
    num_workers: int,
    before: dict[int, int],
    living: Collection[int],
    num_leaves: int,
    rounds: Rounds = EVERY_STEP,
) -> Formed:
    """Who has a state stays, in the order of the members; then those who are ready join, as far as there is room.

    `before` says who was to compute which leaf of the step. Whoever is further behind than the last result can help
    (a straggler whose leaves others have computed) joins like a new one.
    """
    step = max(step for step, _ in promises.values())
    promises = {id_: promise for id_, promise in promises.items() if promise[0] >= rounds.before(step)}
    stay = [id_ for id_ in members if id_ in promises] or sorted(promises)
    # Those who have no state, or not the one that is gone back to, copy it.
    others = sorted((id_ for id_ in ready if id_ not in promises), key=lambda id_: (id_ not in members, id_))
    joiners = others[: max(0, num_workers - len(stay))]
    held = {id_: set(leaves) if at == step else set() for id_, (at, leaves) in promises.items()}
    leaves = share([*stay, *joiners], joiners, held, before, num_leaves)
    lost = {leaf for leaf, owner in before.items() if owner not in living}
    return Formed(
        step=step,
        stay=stay,
        joiners=joiners,
        leaves=leaves,
        num_missing=sum(len(mine - held.get(id_, set())) for id_, mine in leaves.items()),
        num_recomputed=len(lost - set().union(*held.values())),
    )
