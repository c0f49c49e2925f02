"""A generation: a number, an ordered list of members, and the leaves of each. Plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lockstep.exchange import tree


@dataclass(frozen=True)
class Member:
    id: int
    """Given by the supervisor, never used twice in a job."""
    address: str
    """host:port of the store that this member would host if it came first."""


@dataclass(frozen=True)
class Generation:
    """Who works together. Workers exchange only inside a generation."""

    number: int
    members: tuple[Member, ...]
    num_leaves: int
    secret: str
    """Prefix of its keys in the store: whoever does not know it does not meet the others."""
    step: int
    """The step in which it begins: the newest that any member has reached."""
    first_leaves: tuple[tuple[int, ...], ...]
    """The leaves of each member in that step: what it holds already, and its part of what is missing."""
    behind: tuple[int, ...] = ()
    """Members that are one step behind, and are sent its reduced vector."""
    joiners: tuple[int, ...] = ()
    """Members that have no state yet, and copy it from the others."""
    servers: tuple[Member, ...] = ()
    """Who owns the slices, if the workers do not; each at the address on which it waits for them."""
    evaluated: int = -1
    """The last step whose evaluation is complete."""
    evaluated_leaves: tuple[int, ...] = ()
    """Leaves of the evaluation of `step` that are done already."""
    best: dict[str, Any] | None = None
    """The best evaluation so far."""
    verified: int = -1
    """The last step whose state was verified, where that is done."""
    goes_back: bool = False
    """Whether everyone returns to the snapshot of the verified step, which is `step`."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def ids(self) -> list[int]:
        return [member.id for member in self.members]

    def rank(self, id_: int) -> int:
        return self.ids.index(id_)

    def leaves(self, rank: int, step: int) -> list[int]:
        """The leaves that a member computes in a step; none in a step before this generation's."""
        if step < self.step:
            return []
        if step == self.step:
            return list(self.first_leaves[rank])
        return tree.share_leaves(self.num_leaves, len(self.members))[rank]

    @property
    def up_to_date(self) -> list[int]:
        """Ranks of the members that have the state of `step`: they help the others."""
        lacking = {*self.behind, *self.joiners}
        return [rank for rank, member in enumerate(self.members) if member.id not in lacking]

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Generation:
        members = tuple(Member(**member) for member in plain["members"])
        tuples = {key: tuple(plain[key]) for key in ("behind", "joiners", "evaluated_leaves")}
        tuples["servers"] = tuple(Member(**server) for server in plain["servers"])
        first_leaves = tuple(tuple(leaves) for leaves in plain["first_leaves"])
        return Generation(**{**plain, **tuples, "members": members, "first_leaves": first_leaves})


def solo(num_leaves: int) -> Generation:
    """The generation of a process that trains alone, without a supervisor."""
    leaves = (tuple(range(num_leaves)),)
    return Generation(1, (Member(0, ""),), num_leaves, secret="", step=0, first_leaves=leaves)
