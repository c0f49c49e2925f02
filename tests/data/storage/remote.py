"""A storage far away, for tests of what is put in front of one: its bytes are a function of URL, tag and place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from lockstep.data.storage import Object, Range


@lru_cache(maxsize=64)
def contents(found: Object) -> bytes:
    return random.Random(f"{found.url} {found.tag}").randbytes(found.size)


class Remote:
    def __init__(self) -> None:
        self.spans: list[Range] = []

    def find(self, url: str) -> list[Object]:
        return [Object(url, 10, "tag")]

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        self.spans += ranges
        whole = contents(found)
        return [whole[start:stop] for start, stop in ranges]

    @property
    def bytes_read(self) -> int:
        return sum(stop - start for start, stop in self.spans)
