"""A source whose samples lie in shards: reads the ranges of a leaf at once, and decodes them in threads.

OpenCV and file systems release the GIL, so threads are enough. What is read ahead is bounded in bytes. What cannot be
decoded is replaced in training by the next sample, and shown as grey in evaluation, where everything is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from lockstep import host
from lockstep.config import Data
from lockstep.data import decode, framing, gather
from lockstep.data.defects import Defects
from lockstep.data.framing import Frame
from lockstep.data.index import Index
from lockstep.data.order import Indices, Layout, Samples
from lockstep.data.source import Batch
from lockstep.data.storage import Storage
from lockstep.errors import UserError

NUM_READERS = 32
"""Requests under way at once, which wait more than they work."""
MOST_DECODERS = 8
MOST_AHEAD = 64
"""Leaves that may be read ahead, however small they are."""
GREY = 128


class Reading:
    """The bytes of some samples, on their way."""

    def __init__(self, storage: Storage, readers: ThreadPoolExecutor, parts: list[gather.Part]) -> None:
        self.size = sum(part.size for part in parts)
        self._of: dict[int, Future[dict[int, bytes]]] = {}
        for part in parts:
            future = readers.submit(_read, storage, part)
            self._of |= {piece.position: future for piece in part.pieces}

    def take(self, position: int) -> bytes:
        return self._of[position].result()[position]

    @property
    def is_done(self) -> bool:
        return all(future.done() for future in self._of.values())


def _read(storage: Storage, part: gather.Part) -> dict[int, bytes]:
    return part.cut(storage.read(part.found, part.ranges))


class ShardSource:
    def __init__(
        self,
        index: Index,
        storage: Storage,
        data: Data,
        seed: int,
        kind: Literal["train", "test"],
        defects: Defects,
        members: Indices | None = None,
    ) -> None:
        """`members` are the samples of the index that belong to this source, ascending; None for all."""
        self._index, self._storage = index, storage
        self._data, self._seed, self._kind = data, seed, kind
        self._defects = defects
        self._members = members
        self._ahead: dict[bytes, Reading] | None = None
        """What is read of the leaves that are planned; None where nobody plans."""
        self._fetching: set[Reading] = set()
        self._lock = threading.Lock()

    @property
    def is_waiting(self) -> bool:
        """Whether somebody wants samples whose bytes are still on their way."""
        with self._lock:
            return any(not reading.is_done for reading in self._fetching)

    def __len__(self) -> int:
        return len(self._index) if self._members is None else len(self._members)

    @cached_property
    def layout(self) -> int | Layout:
        whole = self._index.layout(self._data.window)
        if isinstance(whole, int):
            return len(self)
        if self._members is None:
            return whole
        ends = np.cumsum(whole.sizes)
        up_to = np.searchsorted(self._members, ends)
        return Layout(tuple(int(size) for size in np.diff(up_to, prepend=0)), whole.window)

    def fingerprint(self) -> str:
        """Of the whole index: which of its samples are in here is for the recipe."""
        return self._index.fingerprint()

    def plan(self, upcoming: Iterable[Samples]) -> None:
        """Begin to read what is fetched next, as much as may be read ahead; forget what is no longer planned."""
        limit, total = self._data.read_ahead << 20, 0
        with self._lock:
            before, kept = self._ahead or {}, {}
            for samples in upcoming:
                key = _key(samples)
                kept[key] = before.get(key) or self._start(samples)
                total += kept[key].size
                if total >= limit or len(kept) >= MOST_AHEAD:
                    break
            self._ahead = kept

    def fetch(self, samples: Samples) -> Batch:
        reading = self._reading(samples)
        try:
            return self._decoded(samples, reading)
        finally:
            with self._lock:
                self._fetching.discard(reading)

    def _decoded(self, samples: Samples, reading: Reading) -> Batch:
        side, count = self._data.side, len(samples)
        images = np.empty((count, side, side, 3), dtype=np.uint8)
        labels = np.empty(count, dtype=np.int64)
        frames = self._frames(samples)

        def fill(position: int) -> None:
            images[position], labels[position] = self._sample(
                int(samples.index[position]), reading.take(position), frames[position]
            )

        for _ in self._decoders.map(fill, range(count)):
            pass
        return Batch(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels)

    def _frames(self, samples: Samples) -> list[Frame]:
        if self._kind == "train":
            return framing.training_frames(self._data, self._seed, samples)
        return [framing.evaluation_frame(self._data)] * len(samples)

    def _sample(self, index: int, data: bytes, frame: Frame) -> tuple[decode.Pixels, int]:
        """An image and its label. In training the next sample takes the place of one that is broken, also in its
        frame: whose turn it is depends on the index alone."""
        for further in range(len(self)):
            sample = self._number((index + further) % len(self))
            label = int(self._index.label[sample]) + self._data.background
            if further:
                found, part = self._index.place(sample)
                (data,) = self._storage.read(found, [part])
            try:
                return decode.cut(data, frame, self._data.side), label
            except decode.Broken as broken:
                self._defects.note(self._index.name(sample), str(broken))
            if self._kind == "test":
                return _grey(self._data.side), label
        raise UserError(f"no image of {self._data.path} can be decoded")

    def _reading(self, samples: Samples) -> Reading:
        """Begun already, or beginning now; whoever plans these samples later must not begin again."""
        key = _key(samples)
        with self._lock:
            found = (self._ahead or {}).get(key) or self._start(samples)
            if self._ahead is not None:
                self._ahead[key] = found
            self._fetching.add(found)
            return found

    def _start(self, samples: Samples) -> Reading:
        places = [self._index.place(self._number(int(index))) for index in samples.index]
        return Reading(self._storage, self._readers, gather.parts_of(places))

    def _number(self, index: int) -> int:
        return index if self._members is None else int(self._members[index])

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(NUM_READERS, thread_name_prefix="read")

    @cached_property
    def _decoders(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(MOST_DECODERS, host.count_cores()), thread_name_prefix="decode")


def _key(samples: Samples) -> bytes:
    """Samples of two epochs are the same bytes."""
    return samples.index.tobytes()


def _grey(side: int) -> npt.NDArray[np.uint8]:
    return np.full((side, side, 3), GREY, dtype=np.uint8)
