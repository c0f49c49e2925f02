"""From any file of CIFAR to one that can be mapped: pickles and archives are converted once, into the cache.

An archive becomes a directory in the layout of the binary version, whatever version it holds.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import IO

from lockstep.data import archive, cache, official, pickles
from lockstep.data.records import File, map_bytes
from lockstep.errors import UserError

PICKLE_STARTS = (b"\x80", b"(d")
"""No label is as great as these first bytes."""

ARCHIVE_SUFFIXES = (".gz", ".tgz", ".tar", ".bz2", ".xz", ".zip")


def format_of(path: Path) -> str:
    """ "archive", "python" or "binary", by the first bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from None
    if archive.is_archive(start):
        return "archive"
    return "python" if start.startswith(PICKLE_STARTS) else "binary"


def mapped(path: Path, name: str) -> File:
    """A file that can be mapped, whatever version of the data set it is."""
    if format_of(path) == "python":
        return File(cache.converted(path, partial(_convert_pickle, path)) / f"{path.name}.bin", name)
    if path.suffix in ARCHIVE_SUFFIXES:
        map_bytes(File(path, name))  # it may be empty, or a web page
        raise UserError(f"{path} is no .tar.gz archive, whatever its name says: download it again")
    return File(path, name)


def unpacked(path: Path) -> Path:
    """The directory with what an archive holds."""
    return cache.converted(path, partial(convert_archive, path))


def convert_archive(path: Path, directory: Path) -> None:
    """Write all known members of an archive, as files of the binary version."""
    archive.unpack(path, lambda name: official.is_data(name) or official.is_meta(name), partial(_take, path, directory))
    if not any(official.is_data(file.name) for file in directory.iterdir()):
        known = ", ".join(name for names in official.NAMES.values() for name in names.archives)
        raise UserError(f"{path} holds no files of CIFAR-10 or CIFAR-100: give one of {known}")


def _take(path: Path, directory: Path, name: str, contents: IO[bytes]) -> None:
    if name.endswith(".bin") or official.is_meta(name):
        with (directory / name).open("xb") as target:
            shutil.copyfileobj(contents, target, archive.CHUNK)
    else:
        _write_pickle(contents.read(), f"{path}, {name}", directory / f"{name}.bin")


def _convert_pickle(path: Path, directory: Path) -> None:
    _write_pickle(path.read_bytes(), str(path), directory / f"{path.name}.bin")


def _write_pickle(data: bytes, name: str, target: Path) -> None:
    records, _ = pickles.to_records(pickles.load(data, name), name)
    target.write_bytes(records.data)
