"""Indexing 1,000 tars of 100 images, and the memory of an index of 1.28 million."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from bench.peers.indexed import IMAGE_BYTES, write_labels
from bench.ratio import Target
from bench.results import ROOT, Figure, Result
from bench.rounds import Say
from lockstep.data.indexing import build
from lockstep.data.listing import Wanted, find
from lockstep.data.storage import Access, Object, Range, Storage, open_storage

SAMPLES = 1_281_167
LIMIT_MIB = 200


class _Counting:
    """A storage that counts what is read through it."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self.num_bytes = storage, 0

    def find(self, url: str) -> list[Object]:
        return self._storage.find(url)

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        self.num_bytes += sum(stop - start for start, stop in ranges)
        return self._storage.read(found, ranges)


def indexing(quick: bool, scratch: Path, say: Say) -> Result:
    shards, images, rounds = (20, 10, 1) if quick else (1000, 100, 3)
    size = _write_shards(scratch / "train", shards, images)
    say(f"{shards} tars, {size / 1e9:.1f} GB")
    seconds, read = [], []
    for _ in range(rounds):
        storage = _Counting(open_storage(Access()))
        started = perf_counter()
        wanted = Wanted(path=str(scratch / "train"))
        index = build(wanted, find(wanted, storage), None, storage)
        seconds.append(perf_counter() - started)
        read.append(storage.num_bytes / (1 << 20))
        assert len(index) == shards * images
        say(f"{seconds[-1]:.2f} s, {read[-1]:.1f} MiB read")
    samples = 10_000 if quick else SAMPLES
    write_labels(scratch / "train.txt", samples)
    memory = {what: _memory(what, scratch) for what in ("made", "opened")}
    say(f"{samples} samples: " + ", ".join(f"{what} {mib:.0f} MiB" for what, mib in memory.items()))
    return Result(
        name="indexing",
        question=f"{shards} tars of {images} images of {IMAGE_BYTES // 1000} KB on a local disk, in its cache: "
        f"the time to index them, and the bytes read. An index of {samples} images: the memory that it adds to "
        f"a process which opens it and looks at every sample, and to one that makes it; at most {LIMIT_MIB} MiB are "
        "wanted.",
        figures=[
            Figure(f"{samples} images, {what}: memory", "MiB", [mib], Target(LIMIT_MIB, at_least=False), exact=True)
            for what, mib in memory.items()
        ],
        measured=[
            Figure("time to index", "seconds", seconds),
            Figure("read", "MiB", read),
            Figure("all shards", "MiB", [size / (1 << 20)]),
        ],
        notes=[
            "Memory is the rise of the peak (VmHWM); pages of the mapped index count, though processes share them. "
            "The index is made of scans of 1000 shards with names and label file as ImageNet has them."
        ],
    )


def _write_shards(root: Path, shards: int, images: int) -> int:
    """Tars whose images are holes: headers are all that is read."""
    root.mkdir(parents=True)
    for number in range(shards):
        synset = f"n{number:08d}"
        with (root / f"{synset}.tar").open("wb") as file:
            for image in range(images):
                member = tarfile.TarInfo(f"{synset}_{image}.JPEG")
                member.size = IMAGE_BYTES
                file.write(member.tobuf(tarfile.GNU_FORMAT))
                file.seek(-(-IMAGE_BYTES // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, io.SEEK_CUR)
            file.write(bytes(2 * tarfile.BLOCKSIZE))
    return sum(path.stat().st_size for path in root.iterdir())


def _memory(what: str, scratch: Path) -> float:
    """MiB by which the peak of a process of its own rises."""
    command = [sys.executable, "-m", "bench.peers.indexed", what, str(scratch)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout)
