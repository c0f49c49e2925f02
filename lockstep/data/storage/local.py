"""Shards that are files of this host, or of a file system that it has mounted."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.data.storage import Object, Range, faults
from lockstep.data.storage.braces import expand
from lockstep.errors import UserError


class Files:
    """Reads with `pread`: no position is shared between threads, and the GIL is not held."""

    def find(self, url: str) -> list[Object]:
        """A name that exists as it is wins over its braces, and these over a glob."""
        found = {one.url: one for path in _paths(url) for one in _below(os.path.abspath(path))}  # noqa: PTH100
        if not found:
            raise UserError(f"there is no file below {url}")
        return [found[name] for name in sorted(found)]

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        try:
            file = os.open(found.url, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if not _is_as_found(os.fstat(file), found):
                    raise faults.changed(found)
                return [_part(file, found, start, stop) for start, stop in ranges]
            finally:
                os.close(file)
        except OSError as error:
            raise UserError(f"cannot read {found.url}: {error.strerror or error}") from None


def _is_as_found(info: os.stat_result, found: Object) -> bool:
    """An image in a folder has no tag, but of its size too much or too little would be read."""
    return _tag(info) == found.tag if found.tag else info.st_size == found.size


def _paths(text: str) -> list[str]:
    if os.path.lexists(text):
        return [text]
    names = expand(text)
    if names != [text]:
        return [path for name in names for path in _paths(name)]
    matches = glob.glob(text, recursive=True)  # noqa: PTH207
    if not matches:
        raise UserError(f"there is no {text}" + (": no file fits this pattern" if glob.has_magic(text) else ""))
    return matches


def _part(file: int, found: Object, start: int, stop: int) -> bytes:
    data = os.pread(file, stop - start, start)
    while len(data) < stop - start:  # at most 2 GB come at once
        more = os.pread(file, stop - start - len(data), start + len(data))
        if not more:
            raise faults.cut_short(found, start + len(data), stop)
        data += more
    return data


def _below(path: str) -> list[Object]:
    """A file, or all files below a directory."""
    try:
        if not Path(path).is_dir():
            return [_object(path, os.stat(path))]  # noqa: PTH116
        return [_object(name, info) for name, info in _walk(path, frozenset())]
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror or error}") from None


def _walk(path: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, os.stat_result]]:
    """Links are followed, but not to a directory that one is in already."""
    here = os.stat(path)  # noqa: PTH116
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(entry.path, above | {identity})
            elif entry.is_file():
                yield entry.path, entry.stat()


def _object(path: str, info: os.stat_result) -> Object:
    if not stat.S_ISREG(info.st_mode):
        raise UserError(f"{path} is not a file")
    return Object(path, info.st_size, _tag(info))


def _tag(info: os.stat_result) -> str:
    return f"{info.st_mtime_ns}-{info.st_size}"
