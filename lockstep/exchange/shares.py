"""Which server of `async` owns what: whole tensors, so that any optimizer works on them. Pure.

The flat vector's gradients and its floating-point buffers are cut between tensors, each into pieces of about the same
size. A worker pulls weights and buffers, and pushes gradients, the changes of buffers, and the short rest of the
vector (changes of integer buffers, loss and counts), which every server gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.exchange.flat import Layout, Place

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Share:
    """What one server owns, as bounds in the flat vector."""

    gradients: tuple[int, int]
    statistics: tuple[int, int]
    names: frozenset[str]

    @property
    def length(self) -> int:
        return self.gradients[1] - self.gradients[0] + self.statistics[1] - self.statistics[0]


def shares(layout: Layout, num_servers: int) -> list[Share]:
    gradients = _cut(layout.gradients, layout.statistics_start, num_servers)
    statistics = _cut(layout.statistics, layout.integers_start, num_servers)
    return [Share(g, s, names | more) for (g, names), (s, more) in zip(gradients, statistics, strict=True)]


def _cut(places: Sequence[Place], end: int, num_servers: int) -> list[tuple[tuple[int, int], frozenset[str]]]:
    offsets = [*(place.offset for place in places), end]
    sizes = [after - before for before, after in itertools.pairwise(offsets)]
    found, first = [], 0
    for count in counts(sizes, num_servers):
        names = frozenset(place.name for place in places[first : first + count])
        found.append(((offsets[first], offsets[first + count]), names))
        first += count
    return found


def counts(sizes: Sequence[int], num_servers: int) -> list[int]:
    """How many of the tensors each server has: in order, each with the server in whose equal part its middle lies."""
    found, start, total = [0] * num_servers, 0, max(1, sum(sizes))
    for size in sizes:
        found[min(num_servers - 1, num_servers * (2 * start + size) // (2 * total))] += 1
        start += size
    return found


def pull_bytes(layout: Layout) -> int:
    """What a worker receives for a leaf: weights and floating-point buffers."""
    return FLOAT_BYTES * layout.integers_start


def push_bytes(layout: Layout, num_servers: int) -> int:
    """What it sends for a leaf: as much, and the rest of the vector to every server."""
    return FLOAT_BYTES * (layout.integers_start + num_servers * (layout.length - layout.integers_start))
