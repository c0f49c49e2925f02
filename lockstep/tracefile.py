"""What every worker did when, in a file that Perfetto and Chrome open: a JSON array of events, one per line.

The array is closed at the end of the session. Should that not come to pass, Perfetto reads the file all the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lockstep.spans import Event


def path(directory: Path, first_step: int) -> Path:
    """A resumed session has a file of its own."""
    return directory / (f"trace-{first_step}.json" if first_step else "trace.json")


class TraceFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._workers: set[int] = set()
        self._is_empty = True

    def write(self, worker: int, events: list[Event]) -> None:
        if worker not in self._workers:
            self._workers.add(worker)
            title = {"name": f"worker {worker}"}
            self._add({"ph": "M", "name": "process_name", "pid": worker, "tid": 0, "args": title})
        for name, start, seconds in events:
            times = {"ts": round(start * 1e6, 1), "dur": round(seconds * 1e6, 1)}
            self._add({"ph": "X", "name": name, "cat": "step", "pid": worker, "tid": 0, **times})
        self._file.flush()

    def _add(self, event: dict[str, Any]) -> None:
        self._file.write(("[\n" if self._is_empty else ",\n") + json.dumps(event))
        self._is_empty = False

    def close(self) -> None:
        self._file.write("[]\n" if self._is_empty else "\n]\n")
        self._file.close()
