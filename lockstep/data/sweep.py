"""Every image of an index once, read and decoded in parallel; and the exact mean of all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lockstep import host
from lockstep.data import decode, gather
from lockstep.data.index import Index
from lockstep.data.indexing import Progress
from lockstep.data.storage import Storage, is_url
from lockstep.errors import UserError

CHUNK = 64
"""Images that a thread reads together."""
REMOTE_THREADS = 8
"""For each core, where threads wait for another host."""


@dataclass
class Mean:
    sums: npt.NDArray[np.uint64]
    """height x width x 3"""
    images: int = 0
    broken: list[str] = field(default_factory=list)
    """The names of those that cannot be decoded, sorted; they do not count."""

    @property
    def image(self) -> npt.NDArray[np.float64]:
        return self.sums / self.images


def mean_image(
    index: Index, storage: Storage, side: int, progress: Progress | None = None, threads: int | None = None
) -> Mean:
    """The mean of all images scaled to side x side. Sums are whole numbers: the order of adding does not count."""
    mean = Mean(np.zeros((side, side, 3), dtype=np.uint64))
    lock = threading.Lock()

    def add(chunk: list[tuple[int, bytes]]) -> None:
        sums, broken = np.zeros(mean.sums.shape, dtype=np.uint32), []
        for sample, data in chunk:
            try:
                sums += decode.square(data, side)
            except decode.Broken as error:
                broken.append(f"{index.name(sample)}: {error}")
        with lock:
            mean.sums += sums
            mean.images += len(chunk) - len(broken)
            mean.broken += broken

    sweep(index, storage, add, progress, threads)
    mean.broken.sort()
    if not mean.images:
        raise UserError(
            f"none of {len(index)} images can be decoded, so they have no mean; the first: {mean.broken[0]}"
        )
    return mean


def sweep(
    index: Index,
    storage: Storage,
    work: Callable[[list[tuple[int, bytes]]], None],
    progress: Progress | None = None,
    threads: int | None = None,
) -> None:
    """Call `work`, in several threads, with samples and their bytes, a few at a time. Progress counts images."""
    remote = is_url(index.shards[0].url)
    threads = threads or host.count_cores() * (REMOTE_THREADS if remote else 1)

    def one(first: int) -> int:
        samples = range(first, min(first + CHUNK, len(index)))
        data: dict[int, bytes] = {}
        for part in gather.parts_of(index.place(sample) for sample in samples):
            data |= part.cut(storage.read(part.found, part.ranges))
        work([(sample, data[position]) for position, sample in enumerate(samples)])
        return len(samples)

    done = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="sweep") as pool:
        try:
            for count in pool.map(one, range(0, len(index), CHUNK)):
                done += count
                if progress:
                    progress(done, len(index))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
