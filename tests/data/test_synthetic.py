"""Random images need no file and hardly any time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.errors import UserError


@pytest.mark.parametrize(
    ("source", "side", "classes", "size"), [("synthetic", 32, 10, 50_000), ("synthetic-imagenet", 224, 1000, 1_281_167)]
)
def test_images_come_from_nowhere_in_the_shape_of_the_real_ones(
    source: str, side: int, classes: int, size: int
) -> None:
    """F24: with labels of every class, pixels of every value, and statistics without a pass over an epoch."""
    start = time.monotonic()
    dataset = open_dataset(Data(source=source), seed=0)
    batch = dataset.train.fetch(in_order(0, 64))
    assert batch.images.shape == (64, 3, side, side)
    assert (dataset.num_classes, len(dataset.train)) == (classes, size)
    assert dataset.train.fetch(in_order(size - 1, size)).labels.tolist() == [(size - 1) % classes]
    assert len(np.unique(batch.images)) == 256
    assert (batch.images[0] != batch.images[1]).any()
    assert all(abs(mean - 127.5) < 1 for mean in dataset.channels.mean)
    assert time.monotonic() - start < 20


def test_images_depend_on_the_seed_alone() -> None:
    """F24."""
    first, again, other = (
        open_dataset(Data(source="synthetic"), seed=seed).train.fetch(in_order(0, 4)) for seed in (0, 0, 1)
    )
    assert (first.images == again.images).all()
    assert (first.images != other.images).any()


def test_files_are_refused() -> None:
    with pytest.raises(UserError, match="reads no files"):
        open_dataset(Data(source="synthetic", path="data"), seed=0)
