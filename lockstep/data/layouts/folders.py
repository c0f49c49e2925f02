"""Images as files, a folder for each class: `n01440764/a.JPEG`. A folder is the shard, with all that is below it.

An image has no entry in memory but its name and size: 1.28 million objects would need half a gigabyte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from lockstep.data.layouts import UNKNOWN, Scan, base_name, columns, encoded, is_image
from lockstep.data.storage import Object
from lockstep.errors import UserError

Listed = list[tuple[str, int]]
"""Names below the folder, and sizes."""


def is_hidden(folder: str) -> bool:
    """Whether a folder, by its path below that of the data, is neither a class nor looked into: what begins with a dot
    is some program's own, with copies of images perhaps."""
    return any(name.startswith(".") for name in folder.split("/"))


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
    with _told(directory):
        with os.scandir(directory) as entries:
            yield [entry.name for entry in entries if entry.is_file()]
        for name in _folders(directory, without):
            for path in _directories(f"{directory}/{name}"):
                with os.scandir(path) as entries:
                    yield [entry.name for entry in entries if entry.is_file()]


def class_names(directory: str, without: Collection[str] = ()) -> tuple[str, ...]:
    """The folders in a directory that hold images, which are its classes."""
    with _told(directory):
        return tuple(name for name in _folders(directory, without) if _holds_images(f"{directory}/{name}"))


def _folders(directory: str, without: Collection[str]) -> list[str]:
    found = (path.name for path in Path(directory).iterdir() if path.is_dir() and not is_hidden(path.name))
    return sorted(set(found) - set(without))


def _holds_images(directory: str) -> bool:
    """Looks no further than the first image."""
    for path in _directories(directory):
        with os.scandir(path) as entries:
            if any(is_image(entry.name) and entry.is_file() for entry in entries):
                return True
    return False


def find_local(directory: str, classes: Sequence[str], without: Collection[str] = ()) -> list[Object]:
    """A folder for each class, or, where there are none, the directory with its images, without some of its folders.

    The tag of a folder changes when a file is added to it, renamed or removed, at any depth.
    """
    inside = [f"{directory}/{name}" for name in classes]
    with _told(directory):
        if not inside:
            return [Object(f"{directory}/", 0, _tag(directory, without))]
        return [Object(f"{path}/", 0, _tag(path)) for path in inside]


def scan(folder: Object, listed: Listed | None, without: Collection[str] = ()) -> Scan:
    """The images of a folder; where nothing listed them, the file system does, and some folders in it do not count."""
    passed_over = 0
    if listed is None:
        with _told(folder.url):
            everything = sorted(_walk(folder.url, without))
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


@contextmanager
def _told(directory: str) -> Iterator[None]:
    """What cannot be read is a UserError that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot read {error.filename or directory}: {error.strerror or error}") from None


def _tag(directory: str, without: Collection[str] = ()) -> str:
    times = [(path, Path(path).stat().st_mtime_ns) for path in sorted(_directories(directory, without))]
    return hashlib.sha256(repr(times).encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _directories(directory: str, without: Collection[str] = ()) -> Iterator[str]:
    """A directory and those below it, in the order of their names; of the folders in it, some not."""
    yield directory
    with os.scandir(directory) as entries:
        folders = [one for one in entries if one.is_dir(follow_symlinks=False) and not is_hidden(one.name)]
        inside = [one.path for one in folders if one.name not in without]
    for path in sorted(inside):
        yield from _directories(path)


def _walk(directory: str, without: Collection[str]) -> Iterator[tuple[str, int]]:
    """Names below a directory with the sizes of the files."""
    for path in _directories(directory.rstrip("/"), without):
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file():
                    yield entry.path.removeprefix(directory), entry.stat().st_size
