"""Augmentation that moves an image: random crops, random shifts, flips. Whole batches at a time, whole pixels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from lockstep import philox
from lockstep.data.order import Indices, Samples
from lockstep.data.source import Images


@dataclass(frozen=True)
class Crop:
    """A window of the original size, anywhere in the image with a border of `padding` pixels around it."""

    seed: int
    padding: int
    mode: Literal["zero", "reflect"]
    """The border is black, or the image mirrored at its edge (which is not repeated)."""

    def __call__(self, images: Images, samples: Samples) -> Images:
        word = philox.words(self.seed, philox.STREAM_AUGMENT, samples.epoch, samples.index)
        border = ((0, 0), (0, 0), (self.padding, self.padding), (self.padding, self.padding))
        padded = np.pad(images, border) if self.mode == "zero" else np.pad(images, border, mode="reflect")
        range_ = 2 * self.padding + 1
        return windows(padded, images.shape, philox.below(word[:, 0], range_), philox.below(word[:, 1], range_))


@dataclass(frozen=True)
class Shift:
    """Up and down, left and right, by up to a fraction of each side; the outermost pixels are repeated."""

    seed: int
    fraction: float

    def __call__(self, images: Images, samples: Samples) -> Images:
        word = philox.words(self.seed, philox.STREAM_SHIFT, samples.epoch, samples.index)
        # The fraction as it was written: 0.29 of 100 pixels is 29, and 28.999999999999996 in floats.
        down, across = (int(Fraction(str(self.fraction)) * side) for side in images.shape[2:])
        padded = np.pad(images, ((0, 0), (0, 0), (down, down), (across, across)), mode="edge")
        top, left = philox.below(word[:, 0], 2 * down + 1), philox.below(word[:, 1], 2 * across + 1)
        return windows(padded, images.shape, top, left)


@dataclass(frozen=True)
class Flip:
    """Mirror half of the images left to right."""

    seed: int
    alternate: bool
    """Whether an image is flipped in every other epoch, from a random one of the first two on, instead of at random:
    any two epochs in a row then show both of its sides (Jordan 2024, "94 % on CIFAR-10 in 3.29 seconds")."""

    def __call__(self, images: Images, samples: Samples) -> Images:
        epoch = np.zeros_like(samples.epoch) if self.alternate else samples.epoch
        word = philox.words(self.seed, philox.STREAM_AUGMENT, epoch, samples.index)
        flipped = (word[:, 2] >> np.uint32(31)).astype(bool)
        if self.alternate:
            flipped ^= samples.epoch % 2 == 1
        return mirror(images, flipped)


def windows(padded: Images, shape: tuple[int, ...], top: Indices, left: Indices) -> Images:
    """Cut a window of the original size out of every padded image at (top, left)."""
    views = np.lib.stride_tricks.sliding_window_view(padded, shape[2:], axis=(2, 3))
    chosen: Images = views[np.arange(len(padded)), :, top, left]
    return chosen


def mirror(images: Images, flipped: npt.NDArray[np.bool_]) -> Images:
    """Flip the chosen images left to right."""
    return np.where(flipped[:, None, None, None], images[..., ::-1], images)
