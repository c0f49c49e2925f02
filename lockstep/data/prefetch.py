"""Reads the next leaves while one is computed. It follows the leaf plan, and follows another when the plan changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from lockstep.data.source import Batch

Key = tuple[int, int]
"""(step, leaf)"""


class Prefetcher:
    """A pure `read(step, leaf)` with the next few results already under way in a thread; with a depth of 0, none."""

    def __init__(self, read: Callable[[int, int], Batch], depth: int) -> None:
        self._read = read
        self._depth = depth
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
        self._ahead: dict[Key, Future[Batch]] = {}

    def take(self, step: int, leaf: int, upcoming: Iterable[Key]) -> Batch:
        """The batch of a leaf; then start on the leaves that come next. What is no longer planned is dropped."""
        future = self._ahead.pop((step, leaf), None)
        batch = future.result() if future is not None else self._read(step, leaf)
        wanted = [key for _, key in zip(range(self._depth), upcoming, strict=False)]
        for key in set(self._ahead) - set(wanted):
            self._ahead.pop(key).cancel()
        for key in wanted:
            self.start(key)
        return batch

    def start(self, key: Key) -> None:
        """Begin to read a leaf that will be taken."""
        if key not in self._ahead and self._depth:
            self._ahead[key] = self._pool.submit(self._read, *key)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
