"""Many requests in flight."""

from __future__ import annotations

import threading

import pytest

from lockstep.data.storage import Object, parallel
from lockstep.data.storage.parallel import Parallel, pieces
from lockstep.errors import UserError

DATA = bytes(range(256)) * 40
FOUND = Object("s3://bucket/key", len(DATA), "tag")


def test_ranges_come_back_in_order_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PIECE_BYTES", 1000)
    asked: list[tuple[int, int]] = []

    def part(one: tuple[int, int]) -> bytes:
        asked.append(one)
        return DATA[slice(*one)]

    ranges = [(5000, 5001), (0, 0), (0, len(DATA)), (17, 1017), (9000, 10240)]
    assert Parallel().read(FOUND, ranges, part) == [DATA[slice(*one)] for one in ranges]
    assert all(0 < stop - start <= 1000 for start, stop in asked)
    assert Parallel().read(FOUND, [], part) == []


def test_nothing_is_asked_for_that_is_not_there() -> None:
    with pytest.raises(UserError, match="s3://bucket/key ends at byte 10240, before byte 10241"):
        Parallel().read(FOUND, [(0, 1), (9000, 10241)], lambda one: pytest.fail(str(one)))


def test_requests_are_in_flight_together_and_threads_are_kept() -> None:
    together = threading.Barrier(8, timeout=20)
    threads: set[int] = set()

    def part(one: tuple[int, int]) -> bytes:
        together.wait()
        threads.add(threading.get_ident())
        return DATA[slice(*one)]

    reads = Parallel()
    for _ in range(5):
        reads.read(FOUND, [(place, place + 1) for place in range(8)], part)
    assert len(threads) <= parallel.THREADS


def test_one_range_needs_no_other_thread() -> None:
    assert Parallel().map(lambda _: threading.get_ident(), [1]) == [threading.get_ident()]


def test_pieces_cover_a_range() -> None:
    size = parallel.PIECE_BYTES
    assert list(pieces((3, 2 * size + 4))) == [(3, size + 3), (size + 3, 2 * size + 3), (2 * size + 3, 2 * size + 4)]
    assert list(pieces((3, 3))) == []
