"""What a data source is: a length, and `fetch(samples) -> batch`. Readers are one file each beside this one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lockstep.data.mix import Mix
from lockstep.data.order import Samples

Images = npt.NDArray[np.uint8]
"""n x channels x height x width"""


@dataclass(frozen=True)
class Batch:
    """Images and their labels."""

    images: Images
    labels: npt.NDArray[np.int64]
    mix: Mix | None = None
    """How the images are to be mixed before they are trained on; no source says so, a leaf does."""


class Source(Protocol):
    """Samples by number. `fetch` is a pure function: the same samples give the same bytes, in any process."""

    def __len__(self) -> int: ...

    def fetch(self, samples: Samples) -> Batch: ...


@dataclass(frozen=True)
class Channels:
    """Mean and deviation of each channel, in units of a pixel's value, 0 to 255."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """A training source, a test source, and what a model must know of both.

    Readers return the training set as it is; `open_dataset` puts the augmentation on top. The test set has none.
    """

    train: Source
    test: Source
    num_classes: int
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...] | None = None
    plain: Source | None = None
    """The training set without augmentation; None while `train` is that itself."""
    sample: Source | None = None
    """What stands for the whole training set where its channels are measured; None for all of it."""

    is_gone: bool = False
    """Whether only the sizes are known, and no sample can be had."""

    @cached_property
    def channels(self) -> Channels:
        """Mean and deviation of the channels of the training set, which the test set is normalised by as well."""
        from lockstep.data.channels import measure

        return measure(self.sample or self.plain or self.train)


def in_order(first: int, stop: int) -> Samples:
    """Samples first .. stop-1 without an epoch's permutation, as evaluation takes them."""
    index = np.arange(first, stop, dtype=np.int64)
    return Samples(epoch=np.zeros_like(index), index=index)
