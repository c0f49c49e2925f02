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


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, size: int) -> Indices:
    """The order of `size` samples in an epoch: those with smaller random keys come first."""
    word = philox.words(seed, philox.STREAM_PERMUTATION, np.full(size, epoch), np.arange(size), num_words=2)
    keys = (word[:, 0].astype(np.uint64) << np.uint64(32)) | word[:, 1]
    order = np.argsort(keys, kind="stable")
    order.setflags(write=False)
    return order


def samples_of_leaf(seed: int, size: int, global_batch: int, num_leaves: int, step: int, leaf: int) -> Samples:
    """The samples of one leaf of one step."""
    leaf_batch = global_batch // num_leaves
    first = step * global_batch + leaf * leaf_batch
    position = np.arange(first, first + leaf_batch, dtype=np.int64)
    epoch, offset = position // size, position % size
    index = np.empty_like(position)
    for value in np.unique(epoch):
        here = epoch == value
        index[here] = permutation(seed, int(value), size)[offset[here]]
    return Samples(epoch=epoch, index=index)


def steps_of_epochs(epochs: float, size: int, global_batch: int) -> int:
    """The number of steps that show at least `epochs` times the data set: ceil(epochs * size / batch)."""
    from fractions import Fraction
    from math import ceil

    return ceil(Fraction(str(epochs)) * size / global_batch)
