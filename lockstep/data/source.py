"""What a data source is: a length, and `fetch(samples) -> batch`. Readers are one file each beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lockstep.data.mix import Mix
from lockstep.data.order import Layout, Samples

if TYPE_CHECKING:
    from lockstep.data.defects import Defects

Images = npt.NDArray[np.uint8]
"""n x channels x height x width"""
Inputs = npt.NDArray[Any]
"""Images, or where a data set holds none, n x anything in float32"""
Targets = npt.NDArray[Any]
"""The numbers of classes, or where there are none, n x anything in float32"""


@dataclass(frozen=True)
class Batch:
    """Images and their labels; of a user's own data whatever goes into the model, and what should come out."""

    images: Inputs
    labels: Targets
    mix: Mix | None = None
    """How the images are to be mixed before they are trained on; no source says so, a leaf does."""


class Source(Protocol):
    """Samples by number. `fetch` is a pure function: the same samples give the same bytes, in any process."""

    def __len__(self) -> int: ...

    def fetch(self, samples: Samples) -> Batch: ...


@runtime_checkable
class Sharded(Protocol):
    """A source that says how its samples are shuffled: those in shards are so within windows of them."""

    @property
    def layout(self) -> int | Layout: ...


def layout_of(source: Source) -> int | Layout:
    """What the order of samples depends on besides the seed and the epoch."""
    return source.layout if isinstance(source, Sharded) else len(source)


@runtime_checkable
class ReadsAhead(Protocol):
    """A source whose samples are far away, so that it likes to know early what will be fetched."""

    def plan(self, upcoming: Iterable[Samples]) -> None: ...


def read_ahead(source: Source, upcoming: Iterable[Samples]) -> None:
    """Tell a source what will be fetched next, in this order; most do not want to know."""
    if isinstance(source, ReadsAhead):
        source.plan(upcoming)


@runtime_checkable
class DrawsHere(Protocol):
    """A source that may draw from the generators of this process while it fetches, which a leaf draws from too."""

    @property
    def draws_here(self) -> bool: ...


def draws_here(source: Source) -> bool:
    """Whether a source must not be read while a leaf is computed."""
    return isinstance(source, DrawsHere) and source.draws_here


@runtime_checkable
class Recognised(Protocol):
    """A source that says which data it holds, see `lockstep.data.fingerprint`; None where it cannot."""

    def fingerprint(self) -> str | None: ...


def fingerprint_of(source: Source) -> str | None:
    """Equal for the same data, wherever they lie; None if nobody can tell."""
    return source.fingerprint() if isinstance(source, Recognised) else None


@dataclass(frozen=True)
class Channels:
    """Mean and deviation of each channel, in units of a pixel's value, 0 to 255."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """A training source, a test source, and what a model must know of both.

    Readers return the training set as it is; `open_dataset` puts the augmentation on top. The test set has none.
    """

    train: Source
    test: Source
    num_classes: int | None
    """None where targets are no classes."""
    image_shape: tuple[int, ...]
    """Of an image, channels x height x width; of whatever else goes into the model."""
    holds_images: bool = True
    """Whether inputs are images in uint8; otherwise they are float32, and go into the model as they are."""
    is_framed: bool = False
    """Whether images are cut out of large ones, in evaluation as `lockstep.data.framing` says."""
    class_names: tuple[str, ...] | None = None
    plain: Source | None = None
    """The training set without augmentation; None while `train` is that itself."""
    sample: Source | None = None
    """What stands for the whole training set where its channels are measured; None for all of it."""

    is_gone: bool = False
    """Whether only the sizes are known, and no sample can be had."""

    is_drawn: bool = False
    """Whether the seed has a part in which samples there are, as in a random split."""
    is_parted: bool = False
    """Whether the reader has taken held-out samples out of the training set by itself."""
    defects: Defects | None = None
    """Where samples that cannot be decoded are noted; None if there cannot be any."""
    waits: Callable[[], bool] = lambda: False
    """Whether somebody waits for samples that come from elsewhere: whoever does is not stuck."""
    overlap: str | None = None
    """What of the test set is known to be in the training set too, in words; None if nothing is."""
    notes: tuple[str, ...] = ()
    """What users should know before the start."""

    @cached_property
    def channels(self) -> Channels:
        """Mean and deviation of the channels of the training set, which the test set is normalised by as well."""
        from lockstep.data.channels import measure

        return measure(self.sample or self.plain or self.train)

    def fingerprints(self) -> dict[str, str]:
        """Of the sets that can be recognised, by their names."""
        train = self.train if self.plain is None else self.plain
        found = {"train": fingerprint_of(train), "test": fingerprint_of(self.test)}
        return {name: checksum for name, checksum in found.items() if checksum is not None}


def in_order(first: int, stop: int) -> Samples:
    """Samples first .. stop-1 without an epoch's permutation, as evaluation takes them."""
    index = np.arange(first, stop, dtype=np.int64)
    return Samples(epoch=np.zeros_like(index), index=index)
