"""Writes snapshots to disk in a thread, so that training does not wait for the disk."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

from lockstep import checkpoint
from lockstep.checkpoint import Snapshot
from lockstep.membership import Membership


class Writer:
    """One write at a time, in order. The supervisor is told of each, good or bad."""

    def __init__(self, root: Path, membership: Membership) -> None:
        self._root = root
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
            self._membership.send(self._write(snapshot) | {"step": snapshot.step, "reason": reason})
            self._snapshots.task_done()

    def _write(self, snapshot: Snapshot) -> dict[str, object]:
        try:
            info = checkpoint.write(self._root, snapshot)
        except Exception as error:
            return {"type": "checkpoint_failed", "error": f"{type(error).__name__}: {error}"}
        return {"type": "checkpointed", "name": info.path.name, "digest": info.digest}
