"""Whether this process is a worker of `lockstep launch`, describes a script to it, or has nothing to do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.worker import Worker


@dataclass
class Session:
    """A worker's connection, before and after the script has asked for it."""

    line: Line
    membership: Membership
    welcome: dict[str, Any]
    worker: Worker | None = None
    """There is one from the start of the script's loop on."""
    store: object = None
    """Where others find this worker's group, for as long as the process lives."""
    digest: str | None = None
    """Of the weights after the last step; None before it is done."""


@dataclass
class Describing:
    """The script is run only up to its loop; what it is goes to this descriptor."""

    descriptor: int
    path: str
    arguments: tuple[str, ...]


current: Session | Describing | None = None
