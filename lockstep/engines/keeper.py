"""Holds one process on a node of a cluster: starts it, hands out what it writes, and says how it ended.

It lives inside an actor, whose death ends the process too. It imports no Ray, and nobody but the engine talks to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass
from pathlib import Path

from lockstep.engines import luggage
from lockstep.engines.local import kill_session

MAX_KEPT_BYTES = 16 << 20
"""Of what nobody has fetched; beyond it the oldest is lost, since no process may wait for its log."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Order:
    """A process to start, as the driver would on its own host."""

    arguments: list[str]
    environment: dict[str, str]
    """Added to that of the node."""
    python: str
    """The driver's interpreter, for which the node's stands in."""
    directory: str
    """The driver's current one."""
    files: list[str]
    """The directories that were packed."""


class Keeper:
    def __init__(self) -> None:
        self._output = bytearray()
        self._first = 0
        """How many bytes came before those in `_output`."""
        self._status: int | None = None
        self._changed = asyncio.Event()
        self._process: Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self, order: Order) -> None:
        """Start the process; it ends with this one."""
        arguments = [sys.executable if order.arguments[0] == order.python else order.arguments[0], *order.arguments[1:]]
        source, sink = os.pipe()
        os.set_blocking(source, False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *arguments,
                env=environment_on_node(order),
                cwd=directory_on_node(order),
                stdin=DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        except OSError:
            os.close(source)
            raise
        finally:
            os.close(sink)
        asyncio.get_running_loop().add_reader(source, self._take, source)
        self._watcher = asyncio.create_task(self._watch(self._process, source))

    async def read(self, position: int) -> tuple[int, bytes, int | None]:
        """What was written from `position` on, after waiting for it: where that begins, the bytes, and once there are
        no more the exit status. Asking again for the same is harmless."""
        del self._output[: max(0, position - self._first)]
        self._first = max(self._first, position)
        while not self._output and self._status is None:
            self._changed.clear()
            await self._changed.wait()
        chunk = bytes(self._output[:CHUNK_BYTES])
        return self._first, chunk, self._status if len(chunk) == len(self._output) else None

    async def kill(self) -> None:
        """End the process with all that it started."""
        if self._process is not None and self._status is None:
            kill_session(self._process.pid)

    async def _watch(self, process: Process, source: int) -> None:
        status = await process.wait()
        kill_session(process.pid)
        asyncio.get_running_loop().remove_reader(source)
        while self._take(source):
            pass
        os.close(source)
        self._status = status
        self._changed.set()

    def _take(self, source: int) -> bool:
        """Keep what has been written; whether there may be more."""
        try:
            data = os.read(source, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:  # everyone has closed it, which is not yet the end of the process
            asyncio.get_running_loop().remove_reader(source)
        self._output += data
        surplus = max(0, len(self._output) - MAX_KEPT_BYTES)
        del self._output[:surplus]
        self._first += surplus
        self._changed.set()
        return bool(data)


def environment_on_node(order: Order) -> dict[str, str]:
    """That of the node, whose path of modules has this package first; the driver's directory counts too, as it does for
    a local process, but never before this package."""
    moved = luggage.moved(order.files)
    places = [os.environ.get("PYTHONPATH", ""), *moved.values(), order.directory]
    return {
        **os.environ,
        **order.environment,
        "PYTHONPATH": os.pathsep.join(place for place in places if place),
        "PYTHONSAFEPATH": "1",
        "LOCKSTEP_MOVED": json.dumps(moved),
        "LOCKSTEP_PARENT": str(os.getpid()),
    }


def directory_on_node(order: Order) -> str | None:
    """The driver's, where there is one of that name; otherwise that of the actor."""
    return order.directory if Path(order.directory).is_dir() else None
