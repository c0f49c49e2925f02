"""Writes snapshots to disk in a thread, so that training does not wait for the disk."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from lockstep import checkpoint
from lockstep.checkpoint import Snapshot
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.wire import Message


@dataclass(frozen=True)
class Order:
    """A snapshot to be written, why the supervisor wants it if it does, and the generation it is from."""

    snapshot: Snapshot
    reason: str | None
    number: int


class Writer:
    """One write at a time, in order. The supervisor is told of each, good or bad.

    On a disk that is slower than the interval between checkpoints, one that nobody asked for gives way to the next, so
    that at most a few copies of the state wait in memory.
    """

    def __init__(self, root: Path | None, line: Line, membership: Membership) -> None:
        self._root = root
        """None where this process cannot see the run directory: then the supervisor gets the files."""
        self._line = line
        self._membership = membership
        self._changed = threading.Condition()
        self._waiting: list[Order] = []
        self._is_writing = False
        self.written = -1
        """The step of the last checkpoint that this process has written."""
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def save(self, snapshot: Snapshot, reason: str | None, number: int) -> None:
        with self._changed:
            self._waiting = [order for order in self._waiting if order.reason is not None]
            self._waiting.append(Order(snapshot, reason, number))
            self._changed.notify_all()

    def forget(self) -> None:
        """What waits is of a state that has turned out to be wrong."""
        with self._changed:
            self._waiting.clear()
            self.written = -1

    def finish(self, seconds: float | None = None) -> None:
        """Wait until everything is on disk, or has failed to get there, or so many seconds have passed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._is_writing, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                order, self._is_writing = self._waiting.pop(0), True
            self._membership.send(self._write(order))
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _write(self, order: Order) -> Message:
        owner = str(self._membership.id)
        try:
            if self._root is not None:
                info = checkpoint.write(self._root, order.snapshot, owner)
                said: Message = {"type": "checkpointed", "name": info.path.name, "digest": info.digest}
            else:
                with tempfile.TemporaryDirectory(prefix="lockstep-") as directory:
                    said = self._line.store(checkpoint.write(Path(directory), order.snapshot, owner).path)
        except Exception as error:
            said = {"type": "checkpoint_failed", "error": f"{type(error).__name__}: {error}"}
        if said["type"] == "checkpointed":
            self.written = order.snapshot.step
        return said | {"step": order.snapshot.step, "reason": order.reason, "number": order.number}
