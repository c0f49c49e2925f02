"""What a data source is: a length, and `fetch(samples) -> batch`. Readers are one file each beside this one."""

from __future__ import annotations

from dataclasses import dataclass
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
class Dataset:
    """A training source (augmented), a test source (never augmented), and what a model must know of both."""

    train: Source
    test: Source
    num_classes: int
    image_shape: tuple[int, int, int]


def in_order(first: int, stop: int) -> Samples:
    """Samples first .. stop-1 without an epoch's permutation, as evaluation takes them."""
    index = np.arange(first, stop, dtype=np.int64)
    return Samples(epoch=np.zeros_like(index), index=index)
