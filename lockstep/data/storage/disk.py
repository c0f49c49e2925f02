"""A cache on the disk of a host, shared by its processes: what was read from elsewhere is read from here next time.

Objects are kept in blocks. A file holds a table with a word for each block of its object, then the blocks, each at its
place; what was never read is a hole. A word is written after its block and holds its checksum, so what is half written,
damaged or cut off is as good as absent, and is read from its source again. Files are opened for each read and never
held: who removes one takes nothing from a reader, and its space is free as soon as the last of them is done.

Space is claimed before it is written, in a file that all lock in turn. When there is none left, those who write are
waited for, and the objects that were not used for the longest time are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from lockstep.data.storage import Object, Range, Storage, faults, is_url
from lockstep.errors import UserError

FORMAT = "blocks-1"
"""The directory below that of the user: another version of Lockstep may keep blocks otherwise."""
BLOCK = 64 << 10
"""Bytes that are read, checked and kept as one. Somewhat less than an image: reading one brings little else along."""
WORD = struct.Struct("<Q")
PRESENT = 1 << 32
"""Added to a checksum, so that no word of a block that is there is zero."""
PAGE = 4096
FREED = 0.1
"""Share of the limit that is made free at once, so that not every claim has to look at all files."""
USED_AGAIN_SECONDS = 1.0
"""How exactly is known when an object was used last."""

Blocks = dict[int, memoryview]


def cached(storage: Storage, directory: Path, limit_bytes: int, warn: Callable[[str], None] | None = None) -> Storage:
    """The same storage, with at most so many bytes of what it read kept below a directory; none of this host's own."""
    if limit_bytes < BLOCK:
        return storage
    return Cached(storage, Shelf(directory / FORMAT, limit_bytes), warn or _to_stderr)


class Cached:
    """Whatever is wrong with the disk, a read is answered: the source has it all."""

    def __init__(self, storage: Storage, shelf: Shelf, warn: Callable[[str], None]) -> None:
        self._storage, self._shelf, self._warn = storage, shelf, warn
        self._is_full = False

    def find(self, url: str) -> list[Object]:
        return self._storage.find(url)

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        if not is_url(found.url) or not found.tag:  # without a tag nobody knows whether it is still the same
            return self._storage.read(found, ranges)
        for _, stop in ranges:
            if stop > found.size:
                raise faults.cut_short(found, found.size, stop)
        wanted = sorted({number for one in ranges for number in _numbers(one)})
        blocks = self._shelf.load(found, wanted)
        lacking = runs([number for number in wanted if number not in blocks])
        if lacking:
            spans = [(first * BLOCK, min(stop * BLOCK, found.size)) for first, stop in lacking]
            new: Blocks = {}
            for (first, _), data in zip(lacking, self._storage.read(found, spans), strict=True):
                new |= _blocks(first, data)
            blocks |= new
            self._keep(found, new)
        return [_cut(blocks, one) for one in ranges]

    def _keep(self, found: Object, blocks: Blocks) -> None:
        if self._is_full:
            return
        try:
            self._shelf.store(found, blocks)
        except OSError as error:
            self._is_full = True
            self._warn(f"the cache {self._shelf.directory} takes no more ({error.strerror or error}): going on without")


class Shelf:
    """The files of a cache."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory, self._limit = directory, limit_bytes
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(f"cannot make the cache {directory} ({error.strerror or error}): choose another") from None

    def path(self, found: Object) -> Path:
        """An object that has changed is another one. Directories stay small, also with a file for each image."""
        name = hashlib.sha256("\n".join([found.url, found.tag, str(found.size)]).encode()).hexdigest()
        return self.directory / name[:2] / name[2:34]

    def load(self, found: Object, numbers: Sequence[int]) -> Blocks:
        """Those of the blocks that are here and whole."""
        try:
            file = os.open(self.path(found), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return {}
        blocks: Blocks = {}
        try:
            words = {number: word for first, stop in runs(numbers) for number, word in _words(file, first, stop)}
            for first, stop in runs(words):
                data = os.pread(file, (stop - first) * BLOCK, _data_start(found) + first * BLOCK)
                for number, block in _blocks(first, data).items():
                    if _word(number, block) == words[number]:
                        blocks[number] = block
            if time.time() - os.fstat(file).st_mtime > USED_AGAIN_SECONDS:
                os.utime(file)
        except OSError:
            pass  # a disk that cannot be read is one that has nothing
        finally:
            os.close(file)
        return blocks

    def store(self, found: Object, blocks: Blocks) -> None:
        """An OSError if the disk takes them not."""
        size = sum(len(block) + PAGE for block in blocks.values())
        if size > self._limit:
            return
        with self._claimed(size):
            path = self.path(found)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for number, block in blocks.items():
                    _write(file, block, _data_start(found) + number * BLOCK)
                    _write(file, WORD.pack(_word(number, block)), number * WORD.size)
            finally:
                os.close(file)

    @contextlib.contextmanager
    def _claimed(self, size: int) -> Iterator[None]:
        """There is room for so many bytes more. Who counts what is there waits until nobody writes."""
        with self._opened("writers") as writers:
            with self._opened("used") as used:
                fcntl.flock(used, fcntl.LOCK_EX)
                text = os.pread(used, 32, 0).strip()
                total = int(text) if text.isdigit() else self._limit  # nobody knows: count
                if total + size > self._limit:
                    fcntl.flock(writers, fcntl.LOCK_EX)
                    total = self._make_room(size)
                _write(used, f"{total + size:<32}".encode(), 0)
                fcntl.flock(writers, fcntl.LOCK_SH)
            yield

    def _make_room(self, size: int) -> int:
        """Remove what was used least recently; the bytes that are used then."""
        files = sorted(self._files())
        used = sum(allocated for _, allocated, _ in files)
        if used + size <= self._limit:
            return used
        for _, allocated, path in files:
            if used + size <= self._limit * (1 - FREED):
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
            used -= allocated
        return used

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """When each was used last, what it takes of the disk, and its name."""
        for directory in self.directory.iterdir():
            if directory.is_dir():
                with os.scandir(directory) as entries:
                    for entry in entries:
                        with contextlib.suppress(FileNotFoundError):
                            info = entry.stat()
                            yield info.st_mtime_ns, info.st_blocks * 512, entry.path

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        """A file to lock, for threads as for processes; the lock ends with the process that holds it."""
        file = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def runs(numbers: Iterable[int]) -> list[Range]:
    """Sorted numbers as ranges of neighbours."""
    found: list[Range] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def _numbers(one: Range) -> range:
    """The blocks that hold a range."""
    start, stop = one
    return range(start // BLOCK, -(-stop // BLOCK)) if stop > start else range(0)


def _blocks(first: int, data: bytes) -> Blocks:
    view = memoryview(data)
    return {first + place // BLOCK: view[place : place + BLOCK] for place in range(0, len(data), BLOCK)}


def _cut(blocks: Blocks, one: Range) -> bytes:
    start, stop = one
    return b"".join(blocks[n][max(0, start - n * BLOCK) : stop - n * BLOCK] for n in _numbers(one))


def _words(file: int, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The number and word of every block that is said to be there."""
    table = os.pread(file, (stop - first) * WORD.size, first * WORD.size)
    for place in range(len(table) // WORD.size):
        word = WORD.unpack_from(table, place * WORD.size)[0]
        if word:
            yield first + place, word


def _data_start(found: Object) -> int:
    table = -(-found.size // BLOCK) * WORD.size
    return -(-table // PAGE) * PAGE


def _word(number: int, block: memoryview) -> int:
    """Depends on the place as well: a block that lies elsewhere is a wrong one."""
    return PRESENT | zlib.crc32(block, number & 0xFFFFFFFF)


def _write(file: int, data: bytes | memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, memoryview(data)[done:], offset + done)


def _to_stderr(text: str) -> None:
    print(f"lockstep: {text}", file=sys.stderr, flush=True)
