"""The index as it is kept on disk: one `.npy` file per column, which is mapped, and `index.json` for the rest.

`sums.json` has the SHA-256 of each of them. Whatever is wrong with any of these is `Damaged`: the files are not
trusted, though nobody but Lockstep should have written them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lockstep.data.index import Index
from lockstep.data.layouts import MAX_LABEL
from lockstep.data.storage import Object

FORMAT_VERSION = 1

COLUMNS: dict[str, type[np.generic]] = {
    "shard": np.int32,
    "offset": np.int64,
    "size": np.int64,
    "label": np.int32,
    "name_ends": np.int64,
    "names": np.uint8,
}
PLAIN = "index.json"
SUMS = "sums.json"


class Damaged(Exception):  # noqa: N818
    """The files do not make an index."""


@dataclass(frozen=True)
class _Plain:
    """What `index.json` holds."""

    version: int
    shards: list[tuple[str, int, str]]
    groups: list[int]
    num_classes: int
    class_names: list[str] | None
    num_taken: int
    num_found: int
    passed_over: int


def write(index: Index, directory: Path) -> None:
    """Into an empty directory."""
    for column, dtype in COLUMNS.items():
        np.save(directory / f"{column}.npy", np.asarray(getattr(index, column), dtype=dtype), allow_pickle=False)
    plain = _Plain(
        version=FORMAT_VERSION,
        shards=[(one.url, one.size, one.tag) for one in index.shards],
        groups=list(index.groups),
        num_classes=index.num_classes,
        class_names=list(index.class_names) if index.class_names is not None else None,
        num_taken=index.num_taken,
        num_found=index.num_found,
        passed_over=index.passed_over,
    )
    (directory / PLAIN).write_text(json.dumps(msgspec.to_builtins(plain)))
    write_sums(directory)


def write_sums(directory: Path) -> None:
    """The checksums of all files that are there."""
    sums = {path.name: _sum(path) for path in sorted(directory.iterdir())}
    (directory / SUMS).write_text(json.dumps(sums))


def read(directory: Path) -> Index:
    """The index, its columns mapped, so that the processes of a host share one copy."""
    try:
        sums = json.loads((directory / SUMS).read_bytes())
        for name in [PLAIN, *(f"{column}.npy" for column in COLUMNS)]:
            if sums[name] != _sum(directory / name):
                raise Damaged(f"{name} does not have its checksum")
        plain = msgspec.json.decode((directory / PLAIN).read_bytes(), type=_Plain)
        columns: dict[str, Any] = {
            column: np.load(directory / f"{column}.npy", mmap_mode="r", allow_pickle=False) for column in COLUMNS
        }
    except Damaged:
        raise
    except Exception as error:  # numpy parses its header with several parsers, each with errors of its own
        raise Damaged(str(error)) from None
    if plain.version != FORMAT_VERSION:
        raise Damaged(f"its version is {plain.version}, not {FORMAT_VERSION}")
    for column, dtype in COLUMNS.items():
        if columns[column].dtype != dtype or columns[column].ndim != 1:
            raise Damaged(f"{column} is of another type")
    index = Index(
        shards=tuple(Object(*one) for one in plain.shards),
        **columns,
        groups=tuple(plain.groups),
        num_classes=plain.num_classes,
        class_names=tuple(plain.class_names) if plain.class_names is not None else None,
        num_taken=plain.num_taken,
        num_found=plain.num_found,
        passed_over=plain.passed_over,
        path=directory,
    )
    check(index)
    return index


def shards_of(directory: Path) -> list[str]:
    """The URLs of the shards that an index tells of, without reading the rest; none where it is damaged."""
    try:
        return [url for url, _, _ in msgspec.json.decode((directory / PLAIN).read_bytes(), type=_Plain).shards]
    except (OSError, msgspec.MsgspecError):
        return []


def check(index: Index) -> None:
    """Every sample lies within a shard, has a class, a name and a group."""
    count = len(index)
    if any(len(column) != count for column in (index.offset, index.size, index.label, index.name_ends)) or not count:
        raise Damaged("its columns are of different lengths, or empty")
    if index.shard.min() < 0 or index.shard.max() >= len(index.shards) or (np.diff(index.shard) < 0).any():
        raise Damaged("a sample is in no shard, or shards are not in order")
    if index.label.min() < 0 or index.label.max() >= index.num_classes or index.num_classes > MAX_LABEL + 1:
        raise Damaged("a label is out of range")
    if index.class_names is not None and len(index.class_names) != index.num_classes:
        raise Damaged("there are not as many names as classes")
    if sum(index.groups) != count or min(index.groups) <= 0:
        raise Damaged("groups and samples are not as many")
    if index.name_ends[0] < 0 or (np.diff(index.name_ends) < 0).any() or index.name_ends[-1] != len(index.names):
        raise Damaged("names overlap")
    is_folder = np.array([one.url.endswith("/") for one in index.shards])
    sizes = np.array([one.size for one in index.shards], dtype=np.int64)
    end = np.where(is_folder, np.iinfo(np.int64).max, sizes)[index.shard]
    if index.offset.min() < 0 or index.size.min() < 0 or (index.offset > end - index.size).any():
        raise Damaged("a sample lies outside of its shard")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
