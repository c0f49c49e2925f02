"""Which samples a leaf takes: a pure function of (seed, step, leaf) and the layout of the data.

Samples form one endless sequence, epoch after epoch. Step s takes positions s*B to (s+1)*B-1, leaf l of V the l-th
part of those. Batches are always full and no sample is left out. Reading them is for the sources beside this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lockstep import philox

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A set of samples; a sample is (epoch, index), so that whoever decodes it knows its augmentation."""

    epoch: Indices
    index: Indices

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Layout:
    """Samples that lie in shards, and are shuffled within windows of some of them: who reads a window reads few shards.

    Where the shards lie does not count, nor what they are called.
    """

    sizes: tuple[int, ...]
    """Samples in each shard."""
    window: int
    """Shards in a window; they are others in every epoch."""

    def __len__(self) -> int:
        return sum(self.sizes)


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, layout: int | Layout) -> Indices:
    """The order of samples in an epoch: those with smaller random keys come first, in a layout window after window."""
    size = layout if isinstance(layout, int) else len(layout)
    keys = _keys(seed, philox.STREAM_PERMUTATION, epoch, size)
    if isinstance(layout, int):
        order = np.argsort(keys, kind="stable")
    else:
        order = np.lexsort((keys, _windows(seed, epoch, layout)))
    order.setflags(write=False)
    return order


def _windows(seed: int, epoch: int, layout: Layout) -> Indices:
    """The window of each sample: shards are shuffled, then taken a few at a time."""
    shards = np.argsort(_keys(seed, philox.STREAM_SHARDS, epoch, len(layout.sizes)), kind="stable")
    window = np.empty(len(shards), dtype=np.int64)
    window[shards] = np.arange(len(shards)) // layout.window
    return np.repeat(window, layout.sizes)


def _keys(seed: int, stream: int, epoch: int, size: int) -> npt.NDArray[np.uint64]:
    word = philox.words(seed, stream, np.full(size, epoch), np.arange(size), num_words=2)
    keys: npt.NDArray[np.uint64] = (word[:, 0].astype(np.uint64) << np.uint64(32)) | word[:, 1]
    return keys


def samples_of_leaf(
    seed: int, layout: int | Layout, global_batch: int, num_leaves: int, step: int, leaf: int
) -> Samples:
    """The samples of one leaf of one step."""
    size = layout if isinstance(layout, int) else len(layout)
    leaf_batch = global_batch // num_leaves
    first = step * global_batch + leaf * leaf_batch
    position = np.arange(first, first + leaf_batch, dtype=np.int64)
    epoch, offset = position // size, position % size
    index = np.empty_like(position)
    for value in np.unique(epoch):
        here = epoch == value
        index[here] = permutation(seed, int(value), layout)[offset[here]]
    return Samples(epoch=epoch, index=index)


def steps_of_epochs(epochs: float, size: int, global_batch: int) -> int:
    """The number of steps that show at least `epochs` times the data set: ceil(epochs * size / batch)."""
    from fractions import Fraction
    from math import ceil

    return ceil(Fraction(str(epochs)) * size / global_batch)
