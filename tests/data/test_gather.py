"""Ranges that are read together: every sample gets its own bytes, in few requests."""

from __future__ import annotations

import numpy as np

from lockstep.data.gather import GAP, MOST, joins, parts_of
from lockstep.data.storage import Object, Range


def contents(found: Object) -> bytes:
    return np.random.default_rng(len(found.url)).bytes(found.size)


def read_all(places: list[tuple[Object, Range]]) -> dict[int, bytes]:
    result: dict[int, bytes] = {}
    for part in parts_of(places):
        whole = contents(part.found)
        result |= part.cut([whole[start:stop] for start, stop in part.ranges])
    return result


def test_every_sample_gets_its_bytes_whatever_is_joined() -> None:
    rng = np.random.default_rng(0)
    objects = [Object("a" * (n + 1), 2_000_000, "") for n in range(3)]
    places: list[tuple[Object, Range]] = []
    for _ in range(60):
        start = int(rng.integers(0, 1_900_000))
        places.append((objects[int(rng.integers(3))], (start, start + int(rng.integers(1, 100_000)))))
    places.append(places[0])  # the last of one epoch and the first of the next may be the same
    found = read_all(places)
    for position, (of, (start, stop)) in enumerate(places):
        assert found[position] == contents(of)[start:stop]


def test_neighbours_are_one_request_and_others_are_not() -> None:
    one = Object("one", 100 << 20, "")
    near = [(0, 1000), (1512, 3000), (3000 + GAP, 5000 + GAP)]
    far = (5001 + 2 * GAP, 6000 + 2 * GAP)
    (part,) = parts_of([(one, far), *((one, place) for place in near)])
    assert part.ranges == ((0, 5000 + GAP), far)
    assert part.size == 5000 + GAP + 999 - 0
    assert len(parts_of([(one, (0, 1)), (Object("two", 10, ""), (1, 2))])) == 2


def test_a_request_is_not_long() -> None:
    assert joins((0, 10), (10, MOST))
    assert not joins((0, 10), (10, MOST + 1))
    assert joins((0, MOST + 10), (5, MOST + 20))  # no byte is read twice
    step = 1 << 20
    (part,) = parts_of([(Object("x", 100 * step, ""), (n * step, (n + 1) * step)) for n in range(20)])
    assert [stop - start for start, stop in part.ranges] == [8 * step, 8 * step, 4 * step]
