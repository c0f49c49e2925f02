"""Which bytes are read together: the samples of a leaf lie in several objects, and some of them side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.data.storage import Object, Range

GAP = 32 << 10
"""Bytes between two ranges that are read for nothing rather than by another request."""
MOST = 8 << 20
"""Bytes above which ranges are not joined: several requests at once are faster than a long one."""


@dataclass(frozen=True)
class Piece:
    """What one sample takes of the ranges that are read of an object."""

    position: int
    """Of the sample among those that are wanted."""
    number: int
    """Of the range."""
    start: int
    """Where it begins in that range."""
    size: int


@dataclass(frozen=True)
class Part:
    """What is read of one object."""

    found: Object
    ranges: tuple[Range, ...]
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def cut(self, read: Sequence[bytes]) -> dict[int, bytes]:
        """The bytes of each sample, by its position."""
        return {p.position: read[p.number][p.start : p.start + p.size] for p in self.pieces}


def parts_of(places: Iterable[tuple[Object, Range]]) -> list[Part]:
    """What is read of each object, the objects in the order in which they first come."""
    wanted: dict[str, tuple[Object, list[tuple[Range, int]]]] = {}
    for position, (found, part) in enumerate(places):
        wanted.setdefault(found.url, (found, []))[1].append((part, position))
    return [_part(found, sorted(pieces)) for found, pieces in wanted.values()]


def _part(found: Object, wanted: list[tuple[Range, int]]) -> Part:
    ranges: list[Range] = []
    pieces: list[Piece] = []
    for (start, stop), position in wanted:
        if ranges and joins(ranges[-1], (start, stop)):
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], stop))
        else:
            ranges.append((start, stop))
        pieces.append(Piece(position, len(ranges) - 1, start - ranges[-1][0], stop - start))
    return Part(found, tuple(ranges), tuple(pieces))


def joins(before: Range, after: Range) -> bool:
    """Whether a range is read together with one that begins no later: they overlap, or are near and not long."""
    return after[0] < before[1] or (after[0] - before[1] <= GAP and after[1] - before[0] <= MOST)
