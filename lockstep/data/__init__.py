"""Data sources, by name. A source is opened by the supervisor to check it, and by every worker to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lockstep import references
from lockstep.config import Data
from lockstep.data import cifar, meanimage, own, shapes, synthetic
from lockstep.data.augment import Augment, Augmented
from lockstep.data.source import Dataset
from lockstep.data.subset import hold_out
from lockstep.errors import unknown


def _open_imagenet(data: Data, seed: int) -> Dataset:
    from lockstep.data.imagenet import open_imagenet  # Pillow, and clients of other hosts

    return open_imagenet(data, seed)


SOURCES: dict[str, Callable[[Data, int], Dataset]] = {
    "cifar10": cifar.open_cifar10,
    "cifar100": cifar.open_cifar100,
    "imagenet": _open_imagenet,
    "shapes": shapes.open_shapes,
    "synthetic": synthetic.open_synthetic,
    "synthetic-imagenet": synthetic.open_synthetic_imagenet,
}

EMBEDDED = ("shapes", "synthetic", "synthetic-imagenet")
"""Sources that need no path, so that `--data shapes` can name them."""


def check_source(name: str) -> None:
    if references.is_reference(name):
        own.check(name)
    elif name not in SOURCES:
        raise unknown("data source", name, [*SOURCES, "file.py:function", "module:function"])


def open_dataset(data: Data, seed: int) -> Dataset:
    """Open the source that a recipe names; everything that can be wrong with it is a UserError."""
    is_own = references.is_reference(data.source)
    if not is_own:
        check_source(data.source)
    dataset = hold_out((own.open_own if is_own else SOURCES[data.source])(data, seed), data.hold_out)
    if not dataset.holds_images:
        return dataset
    if data.standardize == "mean-image":
        meanimage.load(data, dataset.image_shape)
    return replace(dataset, train=Augmented(dataset.train, Augment(data, seed)), plain=dataset.train)
