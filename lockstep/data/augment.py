"""Augmentation of whole batches of uint8 images, keyed by (seed, epoch, sample): no state, no order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockstep import philox
from lockstep.data.order import Samples
from lockstep.data.source import Batch, Source

Images = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """What happens to a training image. Evaluation uses none of it."""

    seed: int
    crop_padding: int = 0
    """Pixels of black border from which a random crop of the original size is taken; 0 leaves the image."""
    flip: bool = False
    """Mirror every other image, at random."""

    def __call__(self, images: Images, samples: Samples) -> Images:
        word = philox.words(self.seed, philox.STREAM_AUGMENT, samples.epoch, samples.index)
        if self.crop_padding:
            range_ = 2 * self.crop_padding + 1
            images = crop(images, self.crop_padding, philox.below(word[:, 0], range_), philox.below(word[:, 1], range_))
        if self.flip:
            images = mirror(images, (word[:, 2] >> np.uint32(31)).astype(bool))
        return images


class Augmented:
    """A source whose images are augmented as they are fetched."""

    def __init__(self, source: Source, augment: Augment) -> None:
        self._source, self._augment = source, augment

    def __len__(self) -> int:
        return len(self._source)

    def fetch(self, samples: Samples) -> Batch:
        batch = self._source.fetch(samples)
        images = self._augment(batch.images, samples)
        return Batch(images=np.ascontiguousarray(images), labels=batch.labels)


def crop(images: Images, padding: int, top: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> Images:
    """Pad every image with zeros and cut a window of the original size at (top, left)."""
    height, width = images.shape[2:]
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    chosen: Images = windows[np.arange(len(images)), :, top, left]
    return chosen


def mirror(images: Images, flipped: npt.NDArray[np.bool_]) -> Images:
    """Flip the chosen images left to right."""
    return np.where(flipped[:, None, None, None], images[..., ::-1], images)
