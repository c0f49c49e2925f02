"""Random transformations of colour and geometry: TrivialAugment and RandAugment, as torchvision defines them.

Pillow does the work; it is imported here, so only by who uses a policy. Pixels from outside of the image are black.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from lockstep import philox
from lockstep.data.order import Samples
from lockstep.data.source import Images
from lockstep.errors import UserError

NUM_BINS = 31
"""Magnitudes are 0 to 30 thirtieths of an operation's most."""
RAND_OPERATIONS, RAND_MAGNITUDE = 2, 9
WORDS_PER_OPERATION = 4

Transform = Callable[[Image.Image, float], Image.Image]
Enhancement = Callable[[Image.Image], ImageEnhance._Enhance]


@dataclass(frozen=True)
class Operation:
    """One transformation, and how far it goes."""

    transform: Transform
    most: float = 0.0
    signed: bool = False
    """Whether it goes to both sides."""


@dataclass(frozen=True)
class Policy:
    """TrivialAugment (wide): one operation of random magnitude. RandAugment: two, both of magnitude 9 of 30."""

    seed: int
    name: Literal["trivial", "rand"]

    def __call__(self, images: Images, samples: Samples) -> Images:
        _, channels, height, width = images.shape
        if channels not in (1, 3):
            raise UserError(f"data.policy is for images of 1 or 3 channels, and these have {channels}: set it to none")
        space = operations(self.name, height, width)
        count = RAND_OPERATIONS if self.name == "rand" else 1
        word = philox.words(
            self.seed, philox.STREAM_POLICY, samples.epoch, samples.index, num_words=count * WORDS_PER_OPERATION
        ).reshape(-1, count, WORDS_PER_OPERATION)
        chosen = philox.below(word[..., 0], len(space))
        bins = philox.below(word[..., 1], NUM_BINS) if self.name == "trivial" else np.full_like(chosen, RAND_MAGNITUDE)
        signs = 1 - 2 * (word[..., 2] >> np.uint32(31)).astype(np.int64)
        result = np.empty_like(images)
        for number, pixels in enumerate(images):
            image = to_pillow(pixels)
            for operation, bin_, sign in zip(chosen[number], bins[number], signs[number], strict=True):
                image = apply(space[operation], image, int(bin_), int(sign))
            result[number] = from_pillow(image)
        return result


def apply(operation: Operation, image: Image.Image, bin_: int, sign: int) -> Image.Image:
    magnitude = bin_ * operation.most / (NUM_BINS - 1)
    return operation.transform(image, sign * magnitude if operation.signed else magnitude)


def to_pillow(pixels: Images) -> Image.Image:
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def from_pillow(image: Image.Image) -> Images:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def operations(policy: Literal["trivial", "rand"], height: int, width: int) -> list[Operation]:
    """The fourteen operations; TrivialAugment goes further than RandAugment in most of them."""
    wide = policy == "trivial"
    shear, angle, factor, bits = (0.99, 135.0, 0.99, 6.0) if wide else (0.3, 30.0, 0.9, 4.0)
    across, down = (32.0, 32.0) if wide else (150 / 331 * width, 150 / 331 * height)
    return [
        Operation(lambda image, _: image),
        Operation(lambda image, m: _affine(image, (1, m, 0, 0, 1, 0)), shear, signed=True),
        Operation(lambda image, m: _affine(image, (1, 0, 0, m, 1, 0)), shear, signed=True),
        Operation(lambda image, m: _affine(image, (1, 0, -int(m), 0, 1, 0)), across, signed=True),
        Operation(lambda image, m: _affine(image, (1, 0, 0, 0, 1, -int(m))), down, signed=True),
        Operation(lambda image, m: image.rotate(m), angle, signed=True),
        Operation(partial(_enhance, ImageEnhance.Brightness), factor, signed=True),
        Operation(partial(_enhance, ImageEnhance.Color), factor, signed=True),
        Operation(partial(_enhance, ImageEnhance.Contrast), factor, signed=True),
        Operation(partial(_enhance, ImageEnhance.Sharpness), factor, signed=True),
        Operation(lambda image, m: ImageOps.posterize(image, 8 - round(m)), bits),
        Operation(lambda image, m: ImageOps.solarize(image, math.ceil(255 - m)), 255.0),
        Operation(lambda image, _: ImageOps.autocontrast(image)),
        Operation(lambda image, _: ImageOps.equalize(image)),
    ]


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Each pixel (x, y) of the result is the nearest one of (a x + b y + c, d x + e y + f)."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def _enhance(enhancement: Enhancement, image: Image.Image, magnitude: float) -> Image.Image:
    return enhancement(image).enhance(1.0 + magnitude)
