"""Label files such as `train.txt`: a line `name label` for every image. Names count without the folders before them.

Kept as sorted columns: 1.28 million names in a dictionary would need some 200 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lockstep.data.layouts import MAX_LABEL, UNKNOWN, Scan, shown
from lockstep.data.storage import Object, Storage
from lockstep.errors import UserError

MAX_BYTES = 1 << 30
MAX_NAME = 255
"""Bytes of a name without folders, as in file systems."""
MAX_LINE = 4096
CHUNK = 1 << 16
"""Lines that are Python objects at a time."""


class Labels:
    """The label of each base name."""

    def __init__(self, url: str, names: npt.NDArray[np.bytes_], labels: npt.NDArray[np.int32]) -> None:
        self.url, self._names, self._labels = url, names, labels
        self.num_classes = int(labels.max()) + 1

    def __len__(self) -> int:
        return len(self._names)

    def of(self, names: Sequence[bytes]) -> npt.NDArray[np.int32]:
        """The label of each base name, UNKNOWN where there is none."""
        wanted = np.array(names, dtype=np.bytes_)
        place = np.minimum(np.searchsorted(self._names, wanted), len(self._names) - 1)
        found: npt.NDArray[np.int32] = np.where(self._names[place] == wanted, self._labels[place], np.int32(UNKNOWN))
        return found

    def put_on(self, scan: Scan, title: str) -> Scan:
        """A scan with these labels instead of those it had; an image that has none is told by name."""
        if not len(scan):
            return scan
        names = scan.split_names()
        found = self.of([name.rsplit(b"/", 1)[-1] for name in names])
        missing = np.flatnonzero(found == UNKNOWN)
        if len(missing):
            name = shown(names[missing[0]].decode(errors="surrogateescape"))
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UserError(f"{title}: {self.url} has no label for {name}{more}; add it there")
        return replace(scan, label=found)


def find_labels(url: str, storage: Storage) -> Object:
    """The one file that a path or URL names."""
    found = storage.find(url)
    if len(found) != 1:
        raise UserError(f"--labels takes one file with a line `name label` for every image, and {url} is {len(found)}")
    return found[0]


def read_labels(found: Object, storage: Storage) -> Labels:
    if found.size > MAX_BYTES:
        raise UserError(
            f"{found.url} has {found.size >> 20} MiB, which no file of labels has: give one with lines `name label`"
        )
    return parse(storage.read(found, [(0, found.size)])[0], found.url)


def parse(data: bytes, url: str) -> Labels:
    """What is wrong with a line is told with its number."""
    chunks = [
        (np.array(names, dtype=np.bytes_), np.array(labels, dtype=np.int32), np.array(numbers, dtype=np.int64))
        for names, labels, numbers in _chunks(data, url)
    ]
    if not chunks:
        raise UserError(f"{url} holds no labels: give a file with a line `name label` for every image")
    names, labels, numbers = (np.concatenate(column) for column in zip(*chunks, strict=True))
    order = np.argsort(names, kind="stable")
    names, labels, numbers = names[order], labels[order], numbers[order]
    twice = np.flatnonzero(names[1:] == names[:-1])
    if len(twice):
        first = twice[np.argmin(numbers[twice + 1])]
        raise UserError(
            f"{url}, line {numbers[first + 1]}: {_shown(names[first])} has a label already, in line {numbers[first]}; "
            "leave one of them"
        )
    return Labels(url, names, labels)


def _chunks(data: bytes, url: str) -> Iterator[tuple[list[bytes], list[int], list[int]]]:
    names: list[bytes] = []
    labels: list[int] = []
    numbers: list[int] = []
    for number, line in enumerate(_lines(data), start=1):
        if not line.strip():
            continue
        name, label = _parse_line(line, f"{url}, line {number}")
        names.append(name)
        labels.append(label)
        numbers.append(number)
        if len(names) == CHUNK:
            yield names, labels, numbers
            names, labels, numbers = [], [], []
    if names:
        yield names, labels, numbers


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start : min(end, start + MAX_LINE)]
        start = end + 1


def _parse_line(line: bytes, where: str) -> tuple[bytes, int]:
    parts = line.rsplit(None, 1)
    if len(parts) != 2 or not parts[1].isdigit():
        raise UserError(f"{where}: {_shown(line)} is not `name label` with a number for the label; correct the file")
    name = parts[0].strip().rsplit(b"/", 1)[-1]
    if not 0 < len(name) <= MAX_NAME or b"\0" in name:
        raise UserError(f"{where}: {_shown(name)} is no name of a file; correct it")
    if len(parts[1]) > 9 or int(parts[1]) > MAX_LABEL:
        raise UserError(f"{where}: label {_shown(parts[1])} is out of range 0 to {MAX_LABEL}; correct it")
    return name, int(parts[1])


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))
