"""Held-out samples take the place of the test set."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.check import check_recipe
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.errors import UserError
from tests.alone import tiny_recipe
from tests.data.test_cifar import opened, write


@pytest.mark.parametrize("source", ["shapes", "synthetic", "synthetic-imagenet"])
def test_the_end_of_the_training_set_is_held_out(source: str) -> None:
    whole = open_dataset(Data(source=source, crop_padding=0, flip=False), seed=0)
    part = open_dataset(Data(source=source, hold_out=300), seed=0)
    size = len(whole.train)
    assert (len(part.train), len(part.test)) == (size - 300, 300)
    held_out, original = part.test.fetch(in_order(290, 300)), whole.train.fetch(in_order(size - 10, size))
    assert (held_out.images == original.images).all()  # not augmented
    assert (held_out.labels == original.labels).all()


def test_training_keeps_its_samples_and_their_augmentation() -> None:
    whole, part = (open_dataset(Data(source="shapes", hold_out=held_out), seed=0) for held_out in (0, 300))
    assert (whole.train.fetch(in_order(0, 50)).images == part.train.fetch(in_order(0, 50)).images).all()


def test_no_test_set_is_needed_and_the_rest_alone_is_measured(tmp_path: Path) -> None:
    """F11: the mean is that of what is trained on."""
    records = write(tmp_path)
    (tmp_path / "test_batch.bin").unlink()
    dataset = opened(tmp_path, hold_out=10)
    assert (len(dataset.train), len(dataset.test)) == (20, 10)
    assert dataset.channels.mean[0] == records[:20, 1:1025].mean(dtype=float)


def test_what_cannot_be_held_out_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match="has 30 samples, so 30 cannot be held out"):
        opened(tmp_path, hold_out=30)
    with pytest.raises(UserError, match="must not be negative"):
        check_recipe(tiny_recipe(data=Data(source="shapes", hold_out=-1)))
    with pytest.raises(UserError, match="and not on both"):
        check_recipe(tiny_recipe(data=Data(path="a", eval_path="b", hold_out=1)))
