"""Augmentation that hides a part of an image: cutout and random erasing.

What is hidden takes the mean colour of the image: close to zero after any standardisation, and a function of the image
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockstep import philox
from lockstep.data.order import Indices, Samples
from lockstep.data.source import Images

ERASED_AREA = (0.02, 0.33)
"""The share of an image that random erasing takes, as in its paper and in torchvision."""
ERASED_RATIO = (0.3, 3.3)
"""Height over width, evenly in the logarithm."""


@dataclass(frozen=True)
class Cutout:
    """A square in every image; its centre is anywhere in the image, so a part of it may lie outside (DeVries 2017)."""

    seed: int
    side: int

    def __call__(self, images: Images, samples: Samples) -> Images:
        word = philox.words(self.seed, philox.STREAM_CUTOUT, samples.epoch, samples.index)
        height, width = images.shape[2:]
        top = philox.below(word[:, 0], height) - self.side // 2
        left = philox.below(word[:, 1], width) - self.side // 2
        return blank(images, top, top + self.side, left, left + self.side)


@dataclass(frozen=True)
class Erase:
    """A rectangle of random area and shape, inside the image, with some probability (Zhong et al. 2017).

    The one in a few hundred that is longer than a side is cut to it: torchvision draws anew.
    """

    seed: int
    probability: float

    def __call__(self, images: Images, samples: Samples) -> Images:
        word = philox.words(self.seed, philox.STREAM_ERASE, samples.epoch, samples.index, num_words=8)
        unit = philox.unit(word)
        height, width = images.shape[2:]
        area = height * width * (ERASED_AREA[0] + unit[:, 1] * (ERASED_AREA[1] - ERASED_AREA[0]))
        low, high = np.log(ERASED_RATIO)
        ratio = np.exp(low + unit[:, 2] * (high - low))
        tall = np.clip(np.rint(np.sqrt(area * ratio)).astype(np.int64), 1, height)
        wide = np.clip(np.rint(np.sqrt(area / ratio)).astype(np.int64), 1, width)
        top, left = philox.below(word[:, 3], height - tall + 1), philox.below(word[:, 4], width - wide + 1)
        tall[unit[:, 0] >= self.probability] = 0
        return blank(images, top, top + tall, left, left + wide)


def blank(images: Images, top: Indices, bottom: Indices, left: Indices, right: Indices) -> Images:
    """Give a rectangle of every image the image's mean colour; what lies outside of the image is ignored."""
    size = images.shape[2] * images.shape[3]
    colour = (images.sum(axis=(2, 3), dtype=np.int64) + size // 2) // size
    rows, columns = np.arange(images.shape[2]), np.arange(images.shape[3])
    inside_rows = (rows >= top[:, None]) & (rows < bottom[:, None])
    inside_columns = (columns >= left[:, None]) & (columns < right[:, None])
    hidden = inside_rows[:, :, None] & inside_columns[:, None, :]
    return np.where(hidden[:, None], colour.astype(np.uint8)[:, :, None, None], images)
