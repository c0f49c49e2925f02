"""Augmentation: what it does, and that it is keyed by the sample alone."""

from __future__ import annotations

import numpy as np
import torch

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.augment import Augment, crop, mirror
from lockstep.data.order import Samples
from lockstep.data.source import in_order
from lockstep.replica import standardize


def images(count: int = 64) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.RandomState(0).randint(1, 256, size=(count, 3, 32, 32)).astype(np.uint8)


def test_crop_is_a_window_of_the_padded_image() -> None:
    """F8: padding 2 and 4."""
    batch = images(2)
    for padding in (2, 4):
        shifted = crop(batch, padding, np.array([0, 2 * padding]), np.array([padding, 0]))
        assert (shifted[0, :, padding:, :] == batch[0, :, :-padding, :]).all()
        assert (shifted[0, :, :padding, :] == 0).all()
        assert (shifted[1, :, :-padding, padding:] == batch[1, :, padding:, :-padding]).all()
        centred = crop(batch, padding, np.array([padding] * 2), np.array([padding] * 2))
        assert (centred == batch).all()


def test_crops_reach_every_offset() -> None:
    """F8: all (2p+1)^2 windows occur, about equally often."""
    augment = Augment(seed=0, crop_padding=2)
    marked = np.zeros((4000, 1, 8, 8), dtype=np.uint8)
    marked[:, 0, 4, 4] = 1
    out = augment(marked, in_order(0, 4000))
    positions, counts = np.unique(np.argwhere(out[:, 0])[:, 1:], axis=0, return_counts=True)
    assert len(positions) == 25
    assert counts.min() > 100


def test_half_of_the_images_are_mirrored() -> None:
    """F9."""
    batch = images(1000)
    out = Augment(seed=0, flip=True)(batch, in_order(0, 1000))
    flipped = (out == batch[..., ::-1]).all(axis=(1, 2, 3))
    assert ((out == batch).all(axis=(1, 2, 3)) != flipped).all()
    assert 430 < flipped.sum() < 570
    assert (mirror(batch[:1], np.array([True])) == batch[:1, :, :, ::-1]).all()


def test_augmentation_depends_on_epoch_and_sample_and_not_on_the_batch() -> None:
    batch = images(64)
    augment = Augment(seed=0, crop_padding=4, flip=True)
    whole = augment(batch, in_order(0, 64))
    parts = np.concatenate([augment(batch[i : i + 8], in_order(i, i + 8)) for i in range(0, 64, 8)])
    assert (whole == parts).all()
    later = augment(batch, Samples(epoch=np.ones(64, dtype=np.int64), index=np.arange(64)))
    assert (whole != later).any(axis=(1, 2, 3)).mean() > 0.9
    other = Augment(seed=1, crop_padding=4, flip=True)(batch, in_order(0, 64))
    assert (whole != other).any(axis=(1, 2, 3)).mean() > 0.9


def test_training_is_augmented_and_evaluation_is_not() -> None:
    """F13: the same record through both sources of a data set."""
    dataset = open_dataset(Data(source="shapes", crop_padding=4, flip=True), seed=0)
    plain = open_dataset(Data(source="shapes", crop_padding=0, flip=False), seed=0)
    samples = in_order(0, 200)
    changed = dataset.train.fetch(samples).images != plain.train.fetch(samples).images
    assert changed.any(axis=(1, 2, 3)).mean() > 0.9
    assert (dataset.test.fetch(samples).images == plain.test.fetch(samples).images).all()


def test_standardisation_has_a_floor_on_the_deviation() -> None:
    """F10: mean 0 and deviation 1, and a constant image does not explode."""
    batch = torch.from_numpy(images(4)).float()
    out = standardize(batch)
    assert torch.allclose(out.mean(dim=(1, 2, 3)), torch.zeros(4), atol=1e-5)
    assert torch.allclose(out.std(dim=(1, 2, 3), correction=0), torch.ones(4), atol=1e-5)
    assert (standardize(torch.full((1, 3, 32, 32), 9.0)) == 0).all()
    nearly = torch.zeros(1, 3, 32, 32)
    nearly[0, 0, 0, 0] = 1e-3
    expected = (1e-3 - 1e-3 / 3072) * 3072**0.5
    assert abs(standardize(nearly)[0, 0, 0, 0].item() - expected) < 1e-5
