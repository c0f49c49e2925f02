"""Engines, by name: they start commands, report how they end, and know nothing of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lockstep.errors import unknown


@dataclass(frozen=True)
class Command:
    """A process to start."""

    id: int
    arguments: list[str]
    environment: dict[str, str]
    """Added to the environment of the engine."""
    log: Path
    """Where standard output and error go."""


OnExit = Callable[[int, str, bool], None]
"""Called with the command's id, how it ended in words, and whether that was by a signal (a death)."""


class Engine(Protocol):
    """Where the processes of a job run."""

    host: str
    """The address on which the supervisor must listen for this engine's processes."""

    async def start(self, command: Command, on_exit: OnExit) -> None: ...

    def kill(self, id_: int) -> None:
        """End a process at once, with all that it started."""

    async def close(self, grace_seconds: float) -> None:
        """Wait a little for processes that were asked to end, then kill the rest. Afterwards none is left."""


def _local() -> Engine:
    from lockstep.engines.local import Local

    return Local()


ENGINES: dict[str, Callable[[], Engine]] = {"local": _local}


def check_engine(name: str) -> None:
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
