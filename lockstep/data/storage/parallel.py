"""Many requests in flight: threads that are started once, and ranges cut to sizes that are worth a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lockstep.data.storage import Object, Range, faults

THREADS = 32
"""They wait for a network, so they may be more than there are cores."""
PIECE_BYTES = 8 << 20
"""Longer ranges are read in pieces of this size, side by side; what is lost when one is cut is bounded, too."""

Item = TypeVar("Item")
Made = TypeVar("Made")


class Parallel:
    """Threads are started when they are needed first."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="storage")

    def map(self, function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """One item needs no other thread. The first error ends what has not begun."""
        if len(items) <= 1:
            return [function(item) for item in items]
        return list(self._threads.map(function, items))

    def read(self, found: Object, ranges: Sequence[Range], part: Callable[[Range], bytes]) -> list[bytes]:
        """`part` reads one range of at least one byte."""
        for _, stop in ranges:
            if stop > found.size:
                raise faults.cut_short(found, found.size, stop)
        cut = [list(pieces(one)) for one in ranges]
        read = iter(self.map(part, [piece for several in cut for piece in several]))
        return [_joined([next(read) for _ in several]) for several in cut]


def pieces(one: Range) -> Iterable[Range]:
    start, stop = one
    for first in range(start, stop, PIECE_BYTES):
        yield first, min(first + PIECE_BYTES, stop)


def _joined(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
