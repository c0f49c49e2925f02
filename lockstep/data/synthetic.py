"""Random images without a file: for measuring speed, when reading must not count."""

from __future__ import annotations

import numpy as np

from lockstep import philox
from lockstep.config import Data
from lockstep.data.augment import Augment
from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset

SHAPE = (3, 32, 32)
NUM_CLASSES = 10
TRAIN_SIZE, TEST_SIZE = 50_000, 10_000
POOL = 512
"""Different images; sample i is image i modulo this."""


class SyntheticSource:
    def __init__(self, size: int, pool: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], augment: Augment | None):
        self._size = size
        self._pool = pool
        self._augment = augment

    def __len__(self) -> int:
        return self._size

    def fetch(self, samples: Samples) -> Batch:
        images = self._pool[samples.index % POOL]
        if self._augment is not None:
            images = self._augment(images, samples)
        return Batch(images=np.ascontiguousarray(images), labels=samples.index % NUM_CLASSES)


def open_synthetic(data: Data, seed: int) -> Dataset:
    pixels = int(np.prod(SHAPE))
    word = philox.words(seed, philox.STREAM_SYNTHETIC, np.zeros(POOL), np.arange(POOL), num_words=pixels // 4)
    pool = np.ascontiguousarray(word).view(np.uint8).reshape(POOL, *SHAPE)
    augment = Augment(data, seed)
    return Dataset(
        train=SyntheticSource(TRAIN_SIZE, pool, augment),
        test=SyntheticSource(TEST_SIZE, pool, None),
        num_classes=NUM_CLASSES,
        image_shape=SHAPE,
    )
