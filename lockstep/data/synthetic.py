"""Random images without a file: for measuring speed, when reading must not count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep import philox
from lockstep.config import Data
from lockstep.data import fingerprint
from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset
from lockstep.errors import UserError


@dataclass(frozen=True)
class Imitation:
    """The measures of the data set that random images stand in for."""

    shape: tuple[int, int, int]
    num_classes: int
    train_size: int
    test_size: int
    pool: int
    """Different images; sample i is image i modulo this."""


CIFAR = Imitation((3, 32, 32), 10, 50_000, 10_000, 512)
IMAGENET = Imitation((3, 224, 224), 1000, 1_281_167, 50_000, 64)


class SyntheticSource:
    def __init__(self, size: int, pool: npt.NDArray[np.uint8], num_classes: int) -> None:
        self._size, self._pool, self._num_classes = size, pool, num_classes

    def __len__(self) -> int:
        return self._size

    def fingerprint(self) -> str:
        """Pixels are drawn by the seed, which is in the recipe."""
        return fingerprint.of_arrays(np.array([self._size, *self._pool.shape]))

    def fetch(self, samples: Samples) -> Batch:
        return Batch(
            images=self._pool[samples.index % len(self._pool)],
            labels=samples.index % self._num_classes,
        )


def open_synthetic(data: Data, seed: int) -> Dataset:
    """Images of CIFAR's size."""
    pixels = int(np.prod(CIFAR.shape))
    word = philox.words(
        seed, philox.STREAM_SYNTHETIC, np.zeros(CIFAR.pool), np.arange(CIFAR.pool), num_words=pixels // 4
    )
    return _dataset(data, CIFAR, word)


def open_synthetic_imagenet(data: Data, seed: int) -> Dataset:
    """Images of ImageNet's usual size."""
    blocks = IMAGENET.pool * int(np.prod(IMAGENET.shape)) // 16
    # Epoch 1 of the stream; its epoch 0 is the source above.
    return _dataset(data, IMAGENET, philox.words(seed, philox.STREAM_SYNTHETIC, np.ones(blocks), np.arange(blocks)))


def _dataset(data: Data, like: Imitation, word: philox.Words) -> Dataset:
    if data.path is not None or data.eval_path is not None:
        raise UserError(f"the source {data.source} reads no files: leave data.path and --eval-data out")
    pool = np.ascontiguousarray(word).view(np.uint8).reshape(like.pool, *like.shape)
    return Dataset(
        train=SyntheticSource(like.train_size, pool, like.num_classes),
        test=SyntheticSource(like.test_size, pool, like.num_classes),
        num_classes=like.num_classes,
        image_shape=like.shape,
        sample=SyntheticSource(like.pool, pool, like.num_classes),
    )
