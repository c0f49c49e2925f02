"""Loads and decodes images and throws them away: `python -m bench.peers.loader LOADER URL COUNT` prints images/s.

The clock starts after the first leaf: connections are there, and the index is made.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

from bench.images import SIDE, frame_like_ours
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.order import samples_of_leaf
from lockstep.data.source import layout_of, read_ahead

LEAF = 32


def ours(url: str, labels: str) -> Iterator[int]:
    """As a worker reads that computes every leaf of one image after the other; how many images each had."""
    data = Data(source="imagenet", path=url, label_path=labels, hold_out=1, side=SIDE, crop_padding=0)
    source = open_dataset(data, 0).train
    for leaf in itertools.count():
        coming = (samples_of_leaf(0, layout_of(source), LEAF, 1, number, 0) for number in itertools.count(leaf))
        read_ahead(source, coming)
        yield len(source.fetch(samples_of_leaf(0, layout_of(source), LEAF, 1, leaf, 0)).labels)


def webdataset(url: str, labels: str) -> Iterator[int]:
    """As its users read: whole tars one after the other, decoded by Pillow."""
    import webdataset as wds  # type: ignore[import-not-found, import-untyped, unused-ignore]

    pipeline = wds.WebDataset(url, shardshuffle=False, empty_check=False).repeat().decode("pil")
    for sample in pipeline:
        image = next(value for key, value in sample.items() if key.lower() in ("jpeg", "jpg"))
        frame_like_ours(image)
        yield 1


def main() -> None:
    loader, url, labels, count = sys.argv[1:5]
    loaded = {"lockstep": ours, "webdataset": webdataset}[loader](url, labels)
    next(loaded)
    started, done = time.perf_counter(), 0
    while done < int(count):
        done += next(loaded)
    print(done / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
