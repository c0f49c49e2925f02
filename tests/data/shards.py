"""Small shards in every layout, for tests, and a storage that counts what is read."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.data.index import Index
from lockstep.data.indexing import open_index
from lockstep.data.listing import Wanted
from lockstep.data.storage import Access, Object, Range, Storage, open_storage

STORAGE = open_storage(Access())


class Elsewhere:
    """A directory as if it lay in a bucket: it is read through URLs. Says what was asked for."""

    def __init__(self, root: Path) -> None:
        self._root, self.requests = str(root), []

    requests: list[Range]

    def find(self, url: str) -> list[Object]:
        found = STORAGE.find(self._root + url.removeprefix("s3://bucket"))
        return [Object(f"s3://bucket{one.url.removeprefix(self._root)}", one.size, one.tag) for one in found]

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        self.requests += ranges
        local = Object(self._root + found.url.removeprefix("s3://bucket"), found.size, found.tag)
        return STORAGE.read(local, ranges)

    @property
    def num_bytes(self) -> int:
        return sum(stop - start for start, stop in self.requests)


def opened(path: object, storage: Storage = STORAGE, **wanted: Any) -> Index:
    return open_index(Wanted(path=str(path), **wanted), storage)


def contents(index: Index, storage: Storage = STORAGE) -> list[bytes]:
    """The bytes of every sample."""
    places = [index.place(sample) for sample in range(len(index))]
    return [storage.read(found, [part])[0] for found, part in places]


def members(index: Index) -> list[str]:
    return [index.member(sample) for sample in range(len(index))]


def noise(size: int, seed: int = 0) -> bytes:
    """What stands for an image where nobody decodes it."""
    return np.random.RandomState(seed).bytes(size)


def jpeg(seed: int = 0, width: int = 40, height: int = 30) -> bytes:
    from PIL import Image

    pixels = np.random.RandomState(seed).randint(0, 256, size=(height, width, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


def write_tar(path: Path, files: Mapping[str, bytes] | Iterable[tuple[tarfile.TarInfo, bytes]], form: int = 1) -> Path:
    """`form` is one of tarfile's: ustar 0, GNU 1, pax 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in files.items() if isinstance(files, Mapping) else files:
            member = tarfile.TarInfo(name) if isinstance(name, str) else name
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))
    return path


def write_synsets(root: Path, count: int, images: int = 3) -> Path:
    """`count` tars of so many images: n00000000.tar, n00000010.tar, ..."""
    for number in range(count):
        synset = f"n{number * 10:08d}"
        files = {f"{synset}_{i}.JPEG": noise(100 + 10 * i + number, number * 100 + i) for i in range(images)}
        write_tar(root / f"{synset}.tar", files)
    return root


def write_tfrecords(path: Path, records: Iterable[bytes]) -> Path:
    """By TensorBoard's own writer, which Lockstep's reader has nothing to do with."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for record in records:
            writer.write(record)
        writer.flush()
    return path


def example(image: bytes | None, label: int | None, filename: str | None = None) -> bytes:
    """A tf.train.Example, field by field: what ImageNet's records have, and something else before and after."""

    def block(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _varint(len(data)) + data

    def feature(name: str, kind: int, values: bytes) -> bytes:
        return block(1, block(1, name.encode()) + block(2, block(kind, values)))

    parts = [feature("image/height", 3, block(1, _varint(30)))]
    if label is not None:
        parts.append(feature("image/class/label", 3, block(1, _varint(label & (1 << 64) - 1))))
    if image is not None:
        parts.append(feature("image/encoded", 1, block(1, image)))
    if filename is not None:
        parts.append(feature("image/filename", 1, block(1, filename.encode())))
    parts.append(feature("image/object/bbox/xmin", 2, block(1, struct.pack("<2f", 0.1, 0.2))))
    return block(1, b"".join(parts))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def same_time(path: Path, of: os.stat_result) -> None:
    """Give a file the time of change that it had."""
    os.utime(path, ns=(of.st_atime_ns, of.st_mtime_ns))
