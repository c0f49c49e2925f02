"""Data sources, by name. A source is opened by the supervisor to check it, and by every worker to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lockstep.config import Data
from lockstep.data import cifar, shapes, synthetic
from lockstep.data.augment import Augment, Augmented
from lockstep.data.source import Dataset
from lockstep.data.subset import hold_out
from lockstep.errors import unknown

SOURCES: dict[str, Callable[[Data, int], Dataset]] = {
    "cifar10": cifar.open_cifar10,
    "cifar100": cifar.open_cifar100,
    "shapes": shapes.open_shapes,
    "synthetic": synthetic.open_synthetic,
    "synthetic-imagenet": synthetic.open_synthetic_imagenet,
}

EMBEDDED = ("shapes", "synthetic", "synthetic-imagenet")
"""Sources that need no path, so that `--data shapes` can name them."""


def check_source(name: str) -> None:
    if name not in SOURCES:
        raise unknown("data source", name, SOURCES)


def open_dataset(data: Data, seed: int) -> Dataset:
    """Open the source that a recipe names; everything that can be wrong with it is a UserError."""
    check_source(data.source)
    dataset = hold_out(SOURCES[data.source](data, seed), data.hold_out)
    return replace(dataset, train=Augmented(dataset.train, Augment(data, seed)), plain=dataset.train)
