"""Augmentation of whole batches of uint8 images, keyed by (seed, epoch, sample): no state, no order of arrival.

Which transformations there are, and in which order; each kind is in a file beside this one. Mixing whole images with
each other needs a leaf, and is in `mix.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from lockstep.config import Data
from lockstep.data.blank import Cutout, Erase
from lockstep.data.geometry import Crop, Flip, Shift
from lockstep.data.order import Layout, Samples
from lockstep.data.source import Batch, Images, Source, draws_here, layout_of, read_ahead

Transformation = Callable[[Images, Samples], Images]
"""A pure function: what becomes of an image depends on the image, its index and its epoch."""


class Augment:
    """What happens to a training image. Evaluation uses none of it."""

    def __init__(self, data: Data, seed: int) -> None:
        self._transformations = transformations(data, seed)

    def __call__(self, images: Images, samples: Samples) -> Images:
        for transform in self._transformations:
            images = transform(images, samples)
        return images


class Augmented:
    """A source whose images are augmented as they are fetched."""

    def __init__(self, source: Source, augment: Augment) -> None:
        self._source, self._augment = source, augment

    def __len__(self) -> int:
        return len(self._source)

    @property
    def layout(self) -> int | Layout:
        return layout_of(self._source)

    @property
    def draws_here(self) -> bool:
        return draws_here(self._source)

    def plan(self, upcoming: Iterable[Samples]) -> None:
        read_ahead(self._source, upcoming)

    def fetch(self, samples: Samples) -> Batch:
        batch = self._source.fetch(samples)
        return replace(batch, images=np.ascontiguousarray(self._augment(batch.images, samples)))


def transformations(data: Data, seed: int) -> list[Transformation]:
    """What a recipe asks for, in the order in which it is done."""
    wanted: list[Transformation] = []
    if data.crop_padding:
        wanted.append(Crop(seed, data.crop_padding, data.pad_mode))
    if data.shift:
        wanted.append(Shift(seed, data.shift))
    if data.flip:
        wanted.append(Flip(seed, alternate=data.flip == "alternate"))
    if data.policy != "none":
        from lockstep.data.policy import Policy  # Pillow

        wanted.append(Policy(seed, data.policy))
    if data.cutout:
        wanted.append(Cutout(seed, data.cutout))
    if data.erase:
        wanted.append(Erase(seed, data.erase))
    return wanted
