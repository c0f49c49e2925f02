"""How shards are laid out, one file per layout beside this one. Here: what the scan of a shard gives, of any layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lockstep.data.storage import Range

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
"""In small letters."""

MAX_LABEL = 99_999
"""A larger one is a slip of the pen, or damage: a model would have so many outputs."""

UNKNOWN = -1
"""The label of a sample that only the name of its group tells."""


class Group(NamedTuple):
    """Samples that are shuffled as one shard: those of a tar, also of one inside another, of a folder, of records."""

    name: str
    """What the label is the rank of, where nothing else tells it."""
    samples: int


class Inner(NamedTuple):
    """A tar inside a tar, which is still to be scanned."""

    name: str
    part: Range


@dataclass(frozen=True)
class Scan:
    """What a shard holds, or a part of one, in the order of its bytes."""

    groups: tuple[Group, ...]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    label: npt.NDArray[np.int32]
    name_ends: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]
    passed_over: int = 0
    """Members that are no images."""
    inner: tuple[Inner, ...] = ()

    def __len__(self) -> int:
        return len(self.offset)

    def split_names(self) -> list[bytes]:
        joined, ends = self.names.tobytes(), self.name_ends.tolist()
        return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def columns(
    group: str,
    names: Sequence[bytes],
    offsets: Sequence[int],
    sizes: Sequence[int],
    labels: Sequence[int] | npt.NDArray[np.int32],
    *,
    passed_over: int = 0,
    inner: Sequence[Inner] = (),
) -> Scan:
    """The scan of one group."""
    return Scan(
        groups=(Group(group, len(names)),),
        offset=np.array(offsets, dtype=np.int64),
        size=np.array(sizes, dtype=np.int64),
        label=np.array(labels, dtype=np.int32),
        name_ends=np.cumsum([len(name) for name in names], dtype=np.int64),
        names=np.frombuffer(b"".join(names), dtype=np.uint8),
        passed_over=passed_over,
        inner=tuple(inner),
    )


def nothing() -> Scan:
    """The scan of a shard without samples."""
    return columns("", (), (), (), ())


def joined(scans: Sequence[Scan]) -> Scan:
    """Several scans, one after the other."""
    lengths = np.array([len(scan.names) for scan in scans], dtype=np.int64)
    before = np.cumsum(lengths) - lengths
    return Scan(
        groups=tuple(group for scan in scans for group in scan.groups),
        offset=np.concatenate([scan.offset for scan in scans]),
        size=np.concatenate([scan.size for scan in scans]),
        label=np.concatenate([scan.label for scan in scans]),
        name_ends=np.concatenate([scan.name_ends + first for scan, first in zip(scans, before, strict=True)]),
        names=np.concatenate([scan.names for scan in scans]),
        passed_over=sum(scan.passed_over for scan in scans),
    )


def is_image(name: str) -> bool:
    """By its name; what macOS puts beside a file under the name `._file` is none."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not base_name(name).startswith("._")


def base_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def encoded(name: str) -> bytes:
    """Names are any bytes to tar and to file systems; the reverse is `decode(errors="surrogateescape")`."""
    return name.encode("utf-8", "surrogateescape")


def shown(name: str) -> str:
    """A name of a stranger as it stands in a sentence: in one line, without commands to the terminal."""
    return name if name.isprintable() else ascii(name)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def describe_passed_over(number: int) -> str:
    return f"{counted(number, 'file')} that {'is no image was' if number == 1 else 'are no images were'} passed over"
