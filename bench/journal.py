"""Journals: what a process did, a line per step. Readable while they grow, and whole when their writer is killed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A process has computed a step."""

    time: float
    """Seconds since 1970."""
    step: int
    """How many steps of the training are done with it."""
    samples: int
    """Of all processes, that went into the weights with this step; 0 if it was computed in vain."""


class Journal:
    """Appends: a process that replaces another one goes on in its journal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, step: int, samples: int) -> None:
        self._file.write(f"{time.time():.4f} {step} {samples}\n")


class Tail:
    """The lines of a file that may not be there yet, as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        """The whole lines since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole + end)
        return whole.decode().splitlines()


def parse(line: str) -> Entry:
    at, step, samples = line.split()
    return Entry(float(at), int(step), int(samples))
