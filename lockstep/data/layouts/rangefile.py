"""A part of a shard as a file that can be read and sought: readers hop from header to header, and read little more.

Contents that are small are read along, since one large request is quicker than many small ones; large ones are
skipped. What counts as small depends on how much a request costs.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

from lockstep.data.storage import Object, Range, Storage, is_url
from lockstep.errors import UserError

MAX_HEADERS = 1 << 20
"""Bytes between two calls of `allow_headers`; more are no headers."""


@dataclass(frozen=True)
class Pace:
    skip: int
    """Contents of more bytes are skipped."""
    block: int
    """Bytes that are read at once while nothing is skipped."""
    header: int
    """Bytes that are read at once after something was."""


LOCAL = Pace(skip=16 << 10, block=64 << 10, header=2 << 10)
REMOTE = Pace(skip=256 << 10, block=1 << 20, header=4 << 10)


class RangeFile(io.RawIOBase):
    """Positions count from the start of the part."""

    def __init__(self, storage: Storage, shard: Object, part: Range | None = None, pace: Pace | None = None) -> None:
        self._storage, self._shard = storage, shard
        self._pace = pace or (REMOTE if is_url(shard.url) else LOCAL)
        self._start, stop = part or (0, shard.size)
        self.length = stop - self._start
        self._position = self._jumped = 0
        self._block, self._block_start = b"", 0
        self._allowed = MAX_HEADERS

    def allow_headers(self) -> None:
        """Another member begins: nobody needs megabytes to say what it is."""
        self._allowed = MAX_HEADERS

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET
        if offset < 0:
            raise UserError(f"{self._shard.url} is damaged: something in it lies before its start; copy it again")
        if offset != self._position:
            self._jumped = abs(offset - self._position)
        self._position = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._allowed:
            raise UserError(
                f"{self._shard.url} is damaged: a header at byte {self._start + self._position} is larger than any; "
                "copy it again"
            )
        self._allowed -= size
        data = self._take(min(size, max(self.length - self._position, 0)))
        self._position += len(data)
        return data

    def contents(self, offset: int, size: int) -> bytes:
        """Bytes that are no header, wherever the reader is."""
        position, jumped = self._position, self._jumped
        self._position = offset
        data = self._take(min(size, max(self.length - offset, 0)))
        self._position, self._jumped = position, jumped
        return data

    def _take(self, size: int) -> bytes:
        if not size:
            return b""
        first = self._position - self._block_start
        if first < 0 or first + size > len(self._block):
            ahead = self._pace.header if self._jumped > self._pace.skip or not self._block else self._pace.block
            stop = min(self._position + max(size, ahead), self.length)
            part = (self._start + self._position, self._start + stop)
            self._block, self._block_start = self._storage.read(self._shard, [part])[0], self._position
            first = 0
        return self._block[first : first + size]
