"""Images that cannot be decoded: named once in the log of the process that finds one, and told to the supervisor."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.data.source import Dataset


def too_many(count: int, limit: int, name: str) -> UserError:
    return UserError(
        f"{count} images cannot be decoded, and data.max_broken is {limit}; the last one is {name}: mend the data, or "
        "allow more with --set data.max_broken=N"
    )


class Defects:
    """What one process has found; safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self.tell: Callable[[str, str], None] | None = None
        """Called with name and reason of each."""

    @property
    def count(self) -> int:
        return len(self._known)

    def note(self, name: str, reason: str) -> None:
        """A UserError if this is one too many."""
        with self._lock:
            if name in self._known:
                return
            self._known.add(name)
            count = len(self._known)
        print(f"{name} is broken, and passed over: {reason}", file=sys.stderr, flush=True)
        if self.tell is not None:
            self.tell(name, reason)
        if count > self._limit:
            raise too_many(count, self._limit, name)


def report_to(send: Callable[[dict[str, Any]], None], dataset: Dataset) -> None:
    """Let the supervisor know of every defect: it counts those of all processes."""
    if dataset.defects is not None:
        dataset.defects.tell = lambda name, reason: send({"type": "broken", "image": name, "reason": reason})
