"""The memory of an index: `python -m bench.peers.indexed made|opened DIRECTORY` prints by how many MiB the peak rises.

Its own process, because a peak never falls. `made` reads the labels in DIRECTORY/train.txt and writes DIRECTORY/index,
which `opened` then opens.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lockstep.data import indexfile, indexing
from lockstep.data.index import Index
from lockstep.data.layouts import UNKNOWN, Scan, columns, tars
from lockstep.data.layouts.labels import Labels, find_labels, read_labels
from lockstep.data.listing import Listing, Wanted
from lockstep.data.storage import Access, Object, Storage, open_storage

SHARDS = 1000
IMAGE_BYTES = 110_000


def write_labels(path: Path, samples: int) -> None:
    with path.open("w") as file:
        file.writelines(f"{_name(number)} {number % SHARDS}\n" for number in range(samples))


def _name(number: int) -> str:
    return f"n{number % SHARDS + 1440764:08d}_{number // SHARDS}.JPEG"


def _made(labels: Labels) -> Index:
    """From shards that need not be there: their scans are as those of real ones."""

    def scan(storage: Storage, shard: Object, **asked: object) -> Scan:
        names = [_name(number).encode() for number in range(int(Path(shard.url).stem), len(labels), SHARDS)]
        offsets = [(IMAGE_BYTES + 1000) * place for place in range(len(names))]
        return columns(shard.url, names, offsets, [IMAGE_BYTES] * len(names), [UNKNOWN] * len(names))

    tars.scan = scan
    shards = tuple(Object(f"/data/{number}.tar", 1 << 40, "tag") for number in range(SHARDS))
    return indexing.build(Wanted(path="/data"), Listing("tar", shards), labels, open_storage(Access()))


def _peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def main() -> None:
    what, directory = sys.argv[1], Path(sys.argv[2])
    storage, before = open_storage(Access()), _peak_mib()
    if what == "made":
        labels = read_labels(find_labels(str(directory / "train.txt"), storage), storage)
        (directory / "index").mkdir()
        indexfile.write(_made(labels), directory / "index")
    else:
        index = indexfile.read(directory / "index")
        assert int(index.size.sum()) == IMAGE_BYTES * len(index)
        assert all(index.name(sample) for sample in range(0, len(index), 100))
    print(_peak_mib() - before)


if __name__ == "__main__":
    main()
