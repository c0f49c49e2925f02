"""CIFAR's binary records: one or two label bytes and 3072 pixels, channel by channel, row by row.

Here are the two kinds of records, and everything that can be wrong with a file of them. Which files there are is for
`layout`, what else they may be packed in for `pickles` and `archive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep.errors import UserError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32

Records = npt.NDArray[np.uint8]

NOT_SHARED = "leave it out of one of them, or download it again"
"""What to do about a file that both sets have."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One of the two data sets."""

    source: str
    """The name of the source in a recipe."""
    title: str
    labels: tuple[str, ...]
    """What the label bytes at the start of a record are."""
    limits: tuple[int, ...]
    """How many classes each of them tells apart."""

    @property
    def record(self) -> int:
        return len(self.labels) + PIXELS


CIFAR10 = Kind(source="cifar10", title="CIFAR-10", labels=("label",), limits=(10,))
CIFAR100 = Kind(source="cifar100", title="CIFAR-100", labels=("coarse label", "fine label"), limits=(20, 100))
KINDS = (CIFAR10, CIFAR100)


@dataclass(frozen=True)
class File:
    """A file of records, and what its reader calls it: the member of an archive is mapped from the cache."""

    path: Path
    name: str


def read_records(file: File, kind: Kind) -> Records:
    """Map a file of records, after checking its size and every label."""
    data = map_bytes(file)
    _check_size(file, data, kind)
    records = data.reshape(-1, kind.record)
    for position, (label, limit) in enumerate(zip(kind.labels, kind.limits, strict=True)):
        wrong = np.flatnonzero(records[:, position] >= limit)
        if wrong.size:
            _refuse_other_kind(file, data, kind)
            first = int(wrong[0])
            raise UserError(
                f"{file.name}, record {first}: {label} {records[first, position]} is out of range 0 to {limit - 1}; "
                f"this is not a {kind.title} file, or it is damaged: download it again"
            )
    return records


def refuse_copies(files: Sequence[tuple[File, Records]], kind: Kind) -> None:
    """A folder beside its archive, or both versions of a batch, which a glob catches together, are the same samples.

    Labels tell nearly all files apart, and have been read already.
    """
    known: dict[bytes, list[tuple[File, Records]]] = {}
    for file, records in files:
        alike = known.setdefault(_labels_of(records, kind), [])
        for other, there in alike:
            if np.array_equal(records, there):
                raise UserError(
                    f"{file.name} holds the same records as {other.name}, so every sample would count twice: give only "
                    "one of them"
                )
        alike.append((file, records))


def shared(
    train: Sequence[tuple[File, Records]], test: Sequence[tuple[File, Records]], kind: Kind
) -> tuple[File, File] | None:
    """A file of the training set, and that of the test set which holds the same records, if there is one."""
    known: dict[bytes, list[tuple[File, Records]]] = {}
    for file, records in test:
        known.setdefault(_labels_of(records, kind), []).append((file, records))
    for file, records in train:
        for other, there in known.get(_labels_of(records, kind), []):
            if np.array_equal(records, there):
                return file, other
    return None


def describe_shared(file: File, other: File) -> str:
    """What `shared` has found."""
    if file.name == other.name:
        return f"{file.name} is in the training set and in the test set, so the test is on what was trained"
    return (
        f"{file.name} of the training set holds the same records as {other.name} of the test set, so the test is on "
        "what was trained"
    )


def _labels_of(records: Records, kind: Kind) -> bytes:
    return records[:, : len(kind.labels)].tobytes()


def map_bytes(file: File) -> Records:
    """The bytes of a file, in memory that all processes of this host share."""
    try:
        size = file.path.stat().st_size
        if size == 0:
            raise UserError(f"{file.name} is empty: download it again")
        data: Records = np.memmap(file.path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise UserError(f"cannot read {file.name} ({error.strerror or error})") from None
    if is_web_page(data[:512].tobytes()):
        raise UserError(f"{file.name} is a web page, not data: an error page was saved in its place; download it again")
    return data


def is_web_page(start: bytes) -> bool:
    return start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml"))


def _check_size(file: File, data: Records, kind: Kind) -> None:
    whole, rest = divmod(len(data), kind.record)
    if rest:
        _refuse_other_kind(file, data, kind)
        _refuse_strange(file, data, kind)
        raise UserError(
            f"{file.name} is truncated: record {whole} has {rest} of {kind.record} bytes; download it again"
        )


def _refuse_strange(file: File, data: Records, kind: Kind) -> None:
    """Say so if the bytes make no sense as records at all, not even as the beginning of one."""
    labels = data[: len(kind.limits)]
    begins = len(data) < kind.record and bool(np.all(labels < np.array(kind.limits)[: len(labels)]))
    if not begins and _share_of_fitting(data, kind) <= 0.9:
        raise UserError(
            f"{file.name} is not a {kind.title} file: neither its size nor its labels fit; give the directory or the "
            f"archive of {kind.title}, or download it with `lockstep data get {kind.source} DIR`"
        )


def _refuse_other_kind(file: File, data: Records, kind: Kind) -> None:
    """Say so if the bytes make sense as records of the other data set."""
    guessed = guess_kind(data, kind)
    if guessed is not kind:
        raise UserError(
            f"{file.name} is a {guessed.title} file, but {kind.title} is wanted: give {kind.title}'s files with "
            f"--data, or a recipe for {guessed.title} (--set data.source={guessed.source})"
        )


def guess_kind(data: Records, preferred: Kind = CIFAR10) -> Kind:
    """The kind whose label bytes fit; where both or none do, the one whose size fits, then the preferred one."""
    return max(
        KINDS, key=lambda kind: (_share_of_fitting(data, kind) > 0.9, len(data) % kind.record == 0, kind is preferred)
    )


def _share_of_fitting(data: Records, kind: Kind) -> float:
    """The share of whole records whose labels are in range."""
    whole = len(data) // kind.record
    if not whole:
        return 0.0
    records = data[: whole * kind.record].reshape(whole, kind.record)
    fits = np.all(records[:, : len(kind.limits)] < np.array(kind.limits), axis=1)
    return float(fits.mean())
