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

    def __len__(self) -> int:
        return len(self.members)

    def rank(self, id_: int) -> int:
        return [member.id for member in self.members].index(id_)

    def leaves(self, rank: int) -> list[int]:
        """The leaves that a member computes in every step."""
        return tree.share_leaves(self.num_leaves, len(self.members))[rank]

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Generation:
        members = tuple(Member(**member) for member in plain["members"])
        return Generation(**{**plain, "members": members})


def solo(num_leaves: int) -> Generation:
    """The generation of a process that trains alone, without a supervisor."""
    return Generation(number=1, members=(Member(0, ""),), num_leaves=num_leaves, secret="")
