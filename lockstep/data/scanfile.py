"""Scans of shards that are far away, or slow to read, kept on disk: what was read once is not read again.

So an index that was interrupted goes on where it stopped, and of a set in which one shard changed only that one is
read. A scan is one safetensors file; its name is a hash of what it depends on. What cannot be read is scanned anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from lockstep.data.cache import cache_directory
from lockstep.data.layouts import Group, Inner, Scan
from lockstep.data.storage import Object

FORMAT_VERSION = 1
COLUMNS = {"offset": np.int64, "size": np.int64, "label": np.int32, "name_ends": np.int64, "names": np.uint8}


@dataclass(frozen=True)
class _Plain:
    """The metadata of the file."""

    groups: list[tuple[str, int]]
    passed_over: int
    inner: list[tuple[str, tuple[int, int]]]
    sum: str = ""
    """SHA-256 of the columns and of the rest of this."""


def kept(shard: Object, asked: list[str | int | bool], scan: Callable[[], Scan]) -> Scan:
    """The scan of this shard, with what was asked of it; made now if it is not there."""
    facts = [FORMAT_VERSION, shard.url, shard.size, shard.tag, asked]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    path = cache_directory() / "scans" / key[:2] / f"{key}.safetensors"
    found = read(path)
    if found is None:
        found = scan()
        write(found, path)
    return found


def write(scan: Scan, path: Path) -> None:
    """Under a temporary name first. Where there is no room nothing is kept: the index will say so.

    Nor is anything whose names are no text.
    """
    from safetensors.numpy import save

    plain = _Plain([*scan.groups], scan.passed_over, [*scan.inner])
    plain = replace(plain, sum=_sum(scan, plain))
    try:
        metadata = {"scan": msgspec.json.encode(plain).decode()}
        data = save({column: getattr(scan, column) for column in COLUMNS}, metadata)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except (OSError, UnicodeEncodeError):
        return


def read(path: Path) -> Scan | None:
    """None if it is not there, or not what was written."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            plain = msgspec.json.decode(file.metadata()["scan"], type=_Plain)
            columns = {column: file.get_tensor(column) for column in COLUMNS}
    except Exception:  # of several libraries, each with errors of its own
        return None
    if any(columns[column].dtype != dtype or columns[column].ndim != 1 for column, dtype in COLUMNS.items()):
        return None
    groups = tuple(Group(*group) for group in plain.groups)
    found = Scan(groups, **columns, passed_over=plain.passed_over, inner=tuple(Inner(*inner) for inner in plain.inner))
    return found if _sum(found, plain) == plain.sum else None


def _sum(scan: Scan, plain: _Plain) -> str:
    hashed = hashlib.sha256(json.dumps([plain.groups, plain.passed_over, plain.inner]).encode())
    for column in COLUMNS:
        values = np.ascontiguousarray(getattr(scan, column))
        hashed.update(str(len(values)).encode())
        hashed.update(values.tobytes())
    return hashed.hexdigest()
