"""`dataset.json`: what a model must know of its data, so that a run can be used after they have gone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec

from lockstep.config import Data
from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset
from lockstep.errors import UserError

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Description:
    """Everything about a data set but its samples."""

    version: int = FORMAT_VERSION
    train_size: int
    test_size: int
    num_classes: int | None
    image_shape: tuple[int, ...]
    holds_images: bool = True
    """Whether inputs are images in uint8, and not numbers of another kind."""
    is_framed: bool | None = None
    """Whether images are cut out of large ones; None where an older Lockstep did not say so."""
    class_names: tuple[str, ...] | None = None
    mean: tuple[float, ...] = ()
    """Of each channel, where images are normalised by it."""
    deviation: tuple[float, ...] = ()


class Gone:
    """The place of a source whose size is known, and whose samples are not needed."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def fetch(self, samples: Samples) -> Batch:
        raise UserError("the samples of this run were not opened")


def describe(dataset: Dataset, data: Data) -> Description:
    return Description(
        train_size=len(dataset.train),
        test_size=len(dataset.test),
        num_classes=dataset.num_classes,
        image_shape=dataset.image_shape,
        holds_images=dataset.holds_images,
        is_framed=dataset.is_framed,
        class_names=dataset.class_names,
        mean=data.mean,
        deviation=data.deviation,
    )


def with_channels(data: Data, dataset: Dataset, stored: Description | None) -> Data:
    """With the mean and deviation of the training set: of the run's, if it is looked at with other data. They belong to
    a run and not to its recipe, which may be trained on other data."""
    if data.standardize != "channel" or data.mean:
        return data
    known = stored if stored is not None and stored.mean else dataset.channels
    return dataclasses.replace(data, mean=known.mean, deviation=known.deviation)


def other_classes(dataset: Dataset, stored: Description, run: str) -> str | None:
    """A note where a run is looked at with data that are about something else; another number of classes is refused."""
    if dataset.num_classes != stored.num_classes:
        raise UserError(
            f"these data have {dataset.num_classes or 'no'} classes, but {run} was trained on "
            f"{stored.num_classes or 'none'}: give data with the same classes, or only a test set with --eval-data"
        )
    here, there = dataset.class_names, stored.class_names
    if here is None or there is None or here == there:
        return None
    other = next(number for number, names in enumerate(zip(here, there, strict=True)) if names[0] != names[1])
    return (
        f"these data have other classes than those of {run}: class {other} is {here[other]!r} here, and was "
        f"{there[other]!r} in training; the figures compare the numbers"
    )


def to_plain(dataset: Dataset, data: Data) -> dict[str, Any]:
    return dataclasses.asdict(describe(dataset, data))


def from_plain(plain: Any) -> Description | None:
    """What `to_plain` wrote; None if it is missing, damaged, or of a version that is not known."""
    try:
        found = msgspec.convert(plain, Description)
    except msgspec.ValidationError:
        return None
    return found if found.version == FORMAT_VERSION else None


def without_samples(found: Description) -> Dataset:
    """A data set that a model can be built for, and that cannot be read."""
    return Dataset(
        train=Gone(found.train_size),
        test=Gone(found.test_size),
        is_gone=True,
        num_classes=found.num_classes,
        image_shape=found.image_shape,
        holds_images=found.holds_images,
    )
