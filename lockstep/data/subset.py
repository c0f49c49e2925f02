"""Parts of a source, and a training set that gives up its end to stand in for the test set."""

from __future__ import annotations

from dataclasses import replace

from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset, Source, draws_here, fingerprint_of
from lockstep.errors import UserError


class Subset:
    """Samples first .. stop-1 of another source, counted from 0."""

    def __init__(self, source: Source, first: int, stop: int) -> None:
        assert 0 <= first <= stop <= len(source)
        self._source, self._first, self._stop = source, first, stop

    def __len__(self) -> int:
        return self._stop - self._first

    @property
    def draws_here(self) -> bool:
        return draws_here(self._source)

    def fingerprint(self) -> str | None:
        """Of all samples: which of them are in here is for the recipe."""
        return fingerprint_of(self._source)

    def fetch(self, samples: Samples) -> Batch:
        return self._source.fetch(Samples(epoch=samples.epoch, index=samples.index + self._first))


def hold_out(dataset: Dataset, count: int) -> Dataset:
    """Keep the last samples out of the training set, and test on them; 0 leaves everything as it is."""
    if not count or dataset.is_parted:
        return dataset
    size = len(dataset.train)
    if count >= size:
        raise UserError(f"the training set has {size} samples, so {count} cannot be held out: give --hold-out less")
    rest = size - count
    return replace(dataset, train=Subset(dataset.train, 0, rest), test=Subset(dataset.train, rest, size))
