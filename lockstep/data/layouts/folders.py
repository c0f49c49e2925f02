"""Images as files, a folder for each class: `n01440764/a.JPEG`. A folder is the shard, with all that is below it.

An image has no entry in memory but its name and size: 1.28 million objects would need half a gigabyte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal

from lockstep.data.layouts import UNKNOWN, Scan, base_name, columns, encoded, is_image
from lockstep.data.storage import Object
from lockstep.errors import UserError

Listed = list[tuple[str, int]]
"""Names below the folder, and sizes."""


def first_kind(
    directory: str, is_shard: Callable[[str], bool], without: Collection[str] = ()
) -> Literal["image", "shard"] | None:
    """What is the first file that counts, from the top down; some folders do not."""
    for files in _levels(directory, without):
        if any(is_shard(name) for name in files):
            return "shard"
        if any(is_image(name) for name in files):
            return "image"
    return None


def _levels(directory: str, without: Collection[str]) -> Iterator[list[str]]:
    """The files of a directory, then those below each folder in it. Links to folders count here, and no deeper."""
    try:
        with os.scandir(directory) as entries:
            yield [entry.name for entry in entries if entry.is_file()]
        for name in class_names(directory, without):
            for _, folders, files in os.walk(f"{directory}/{name}"):
                folders.sort()
                yield files
    except OSError as error:
        raise UserError(f"cannot read {error.filename or directory}: {error.strerror or error}") from None


def class_names(directory: str, without: Collection[str] = ()) -> tuple[str, ...]:
    """The folders in a directory, which are its classes."""
    found = (path.name for path in Path(directory).iterdir() if path.is_dir() and path.name[0] != ".")
    return tuple(sorted(set(found) - set(without)))


def find_local(directory: str, without: Collection[str] = ()) -> list[Object]:
    """A folder for each class, or, where there are none, the directory with its images.

    The tag of a folder changes when a file is added to it, renamed or removed, at any depth.
    """
    try:
        inside = [f"{directory}/{name}" for name in class_names(directory, without)] or [directory]
        return [Object(f"{path}/", 0, _tag(path)) for path in inside]
    except OSError as error:
        raise UserError(f"cannot read {error.filename or directory}: {error.strerror or error}") from None


def scan(folder: Object, listed: Listed | None) -> Scan:
    """The images of a folder; where nothing listed them, the file system does."""
    passed_over = 0
    if listed is None:
        try:
            everything = sorted(_walk(folder.url))
        except OSError as error:
            raise UserError(f"cannot read {error.filename or folder.url}: {error.strerror or error}") from None
        listed = [(name, size) for name, size in everything if is_image(name)]
        passed_over = len(everything) - len(listed)
    return columns(
        base_name(folder.url.rstrip("/")),
        [encoded(name) for name, _ in listed],
        [0] * len(listed),
        [size for _, size in listed],
        [UNKNOWN] * len(listed),
        passed_over=passed_over,
    )


def _tag(directory: str) -> str:
    times = [(path, Path(path).stat().st_mtime_ns) for path in sorted(_directories(directory))]
    return hashlib.sha256(repr(times).encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _directories(directory: str) -> Iterator[str]:
    yield directory
    with os.scandir(directory) as entries:
        inside = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for path in inside:
        yield from _directories(path)


def _walk(directory: str) -> Iterator[tuple[str, int]]:
    """Names below a directory with the sizes of the files."""
    for path in _directories(directory.rstrip("/")):
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file():
                    yield entry.path.removeprefix(directory), entry.stat().st_size
