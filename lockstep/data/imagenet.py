"""The source `imagenet`: large images with one label each, in tars, folders or TFRecords, on this host or elsewhere.

What lies where is for the index (`indexing.py`), reading and decoding for `shards.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from lockstep.config import Data
from lockstep.data import decode
from lockstep.data.cache import cache_directory
from lockstep.data.defects import Defects
from lockstep.data.index import Index
from lockstep.data.indexing import open_index
from lockstep.data.listing import Wanted
from lockstep.data.order import Indices
from lockstep.data.shards import ShardSource
from lockstep.data.source import Dataset
from lockstep.data.storage import Access, Storage, open_storage
from lockstep.errors import UserError

PROGRESS_SECONDS = 3.0
NUM_MEASURED = 1000
"""Images that stand for all where the mean of the channels is measured."""


def open_imagenet(data: Data, seed: int) -> Dataset:
    """The index of the training set, and of the test set: given, beside it, or held out."""
    if data.path is None:
        raise UserError(
            "this recipe trains on images of your own: give their directory or URL with --data, or take "
            "--data synthetic-imagenet for random ones"
        )
    decode.check_installed()
    storage = _storage(data)
    train = _index(data, storage, None)
    if not len(train):
        raise UserError(f"there is no image in {data.path}: give the directory or the URL of some with --data")
    defects = Defects(data.max_broken)
    notes = _notes(train, data.key_prefix)
    if data.hold_out:
        count, more = _number_held_out(len(train), data.hold_out)
        notes += more
        rest, held_out = parted(len(train), count)
        test, test_members = train, held_out
    else:
        rest, test_members = None, None
        test = _index(data, storage, train)
        _check_classes(data, train, test)
    sources = (
        ShardSource(train, storage, data, seed, "train", defects, rest),
        ShardSource(test, storage, data, seed, "test", defects, test_members),
    )
    names = train.class_names
    if names is not None and data.background:
        names = ("background", *names)
    return Dataset(
        train=sources[0],
        test=sources[1],
        num_classes=train.num_classes + data.background,
        image_shape=(3, data.side, data.side),
        is_framed=True,
        class_names=names,
        sample=ShardSource(train, storage, data, seed, "test", defects, spread(len(train), NUM_MEASURED)),
        is_parted=True,
        defects=defects,
        waits=lambda: any(source.is_waiting for source in sources),
        notes=notes,
    )


def _storage(data: Data) -> Storage:
    storage = open_storage(Access(endpoint_url=data.endpoint_url, anonymous=data.anonymous))
    if not data.cache_size:
        return storage
    from lockstep.data.storage.disk import cached

    return cached(storage, cache_directory() / "shards", int(data.cache_size * 1e9))


def _index(data: Data, storage: Storage, train: Index | None) -> Index:
    """That of the training set; of the test set if that of the training set is given."""
    assert data.path is not None
    if train is None:
        wanted = Wanted(path=data.path, label_path=data.label_path, key_prefix=data.key_prefix, split="train")
    else:
        wanted = Wanted(
            path=data.eval_path or data.path,
            label_path=data.eval_label_path,
            split="test",
            beside=data.eval_path is None,
            classes=train.class_names,
        )
    return open_index(wanted, storage, Progress())


class Progress:
    """Says on standard error how far an index is that takes its time; one that is there already takes none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said = clock()

    def __call__(self, done: int, total: int) -> None:
        if self._clock() - self._said >= PROGRESS_SECONDS:
            self._said = self._clock()
            print(f"index: {done} of {total} shards read", file=sys.stderr, flush=True)


def _check_classes(data: Data, train: Index, test: Index) -> None:
    if test.num_classes > train.num_classes:
        raise UserError(
            f"the test set has labels up to {test.num_classes - 1}, but the training set {data.path} has "
            f"{train.num_classes} classes: give the label files of both with --labels and --eval-labels"
        )


def _notes(index: Index, prefix: str) -> tuple[str, ...]:
    """The first letter takes all where names are of one kind, as synsets are; if it does not, the next run says so."""
    if index.num_taken == index.num_found or not prefix:
        return ()
    shorter = prefix[0] if len(prefix) > 1 else "''"
    return (f"{index.num_taken} of {index.num_found} shards; --key-prefix {shorter} for all",)


def _number_held_out(size: int, asked: int) -> tuple[int, tuple[str, ...]]:
    """As many as the recipe asks for; of a set that is not larger than that, a tenth."""
    if size < 2:
        raise UserError(f"the training set has {size} image, so none can be held out: give a test set with --eval-data")
    if asked < size:
        return asked, ()
    count = max(1, size // 10)
    return count, (f"the training set has {size} images: the test takes {count} of them, and not {asked}",)


def spread(size: int, count: int) -> Indices:
    """So many of the samples, evenly over all shards."""
    count = min(size, count)
    return (np.arange(count, dtype=np.int64) * 2 + 1) * size // (2 * max(1, count))


def parted(size: int, count: int) -> tuple[Indices, Indices]:
    """The samples that stay in the training set, and those that are held out of it."""
    held_out = spread(size, count)
    return np.delete(np.arange(size, dtype=np.int64), held_out), held_out
