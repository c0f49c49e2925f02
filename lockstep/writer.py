"""Writes snapshots to disk in a thread, so that training does not wait for the disk."""

from __future__ import annotations

import queue
import tempfile
import threading
from pathlib import Path

from lockstep import checkpoint
from lockstep.checkpoint import Snapshot
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.wire import Message


class Writer:
    """One write at a time, in order. The supervisor is told of each, good or bad."""

    def __init__(self, root: Path | None, line: Line, membership: Membership) -> None:
        self._root = root
        """None where this process cannot see the run directory: then the supervisor gets the files."""
        self._line = line
        self._membership = membership
        self._snapshots: queue.Queue[tuple[Snapshot, str | None]] = queue.Queue()
        threading.Thread(target=self._run, name="checkpoints", daemon=True).start()

    def save(self, snapshot: Snapshot, reason: str | None) -> None:
        self._snapshots.put((snapshot, reason))

    def finish(self) -> None:
        """Wait until everything is on disk, or has failed to get there."""
        self._snapshots.join()

    def _run(self) -> None:
        while True:
            snapshot, reason = self._snapshots.get()
            try:
                said = (
                    self._write(snapshot) if self._root is None else described(checkpoint.write(self._root, snapshot))
                )
            except Exception as error:
                said = {"type": "checkpoint_failed", "error": f"{type(error).__name__}: {error}"}
            self._membership.send(said | {"step": snapshot.step, "reason": reason})
            self._snapshots.task_done()

    def _write(self, snapshot: Snapshot) -> Message:
        with tempfile.TemporaryDirectory(prefix="lockstep-") as directory:
            return self._line.store(checkpoint.write(Path(directory), snapshot).path)


def described(info: checkpoint.Info) -> Message:
    return {"type": "checkpointed", "name": info.path.name, "digest": info.digest}
