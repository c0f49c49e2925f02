"""Crops, shifts and flips: what they do, and how often."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.data.geometry import Crop, Flip, Shift, mirror, windows
from lockstep.data.order import Indices, Samples
from lockstep.data.source import Images, in_order
from tests.data.test_augment import noise


def in_epoch(epoch: int, count: int) -> Samples:
    return Samples(epoch=np.full(count, epoch), index=np.arange(count))


def offsets(out: Images) -> tuple[Indices, Indices]:
    """Where the one bright pixel of every image is now, and how often it is there."""
    positions, counts = np.unique(np.argwhere(out[:, 0])[:, 1:], axis=0, return_counts=True)
    return positions.astype(np.int64), counts.astype(np.int64)


def test_windows_are_cut_at_their_place() -> None:
    padded = noise(3)
    cut = windows(padded, (3, 3, 24, 20), np.array([0, 8, 4]), np.array([12, 0, 1]))
    assert (cut[0] == padded[0, :, :24, 12:]).all()
    assert (cut[1] == padded[1, :, 8:, :20]).all()
    assert (cut[2] == padded[2, :, 4:28, 1:21]).all()


@pytest.mark.parametrize("padding", [2, 4])
def test_crops_reach_every_offset(padding: int) -> None:
    """F8: all (2p+1)^2 windows occur, about equally often, and what comes from outside is black."""
    count = 40 * (2 * padding + 1) ** 2
    marked = np.zeros((count, 1, 16, 16), dtype=np.uint8)
    marked[:, 0, 8, 8] = 1
    positions, counts = offsets(Crop(0, padding, "zero")(marked, in_order(0, count)))
    assert positions.min() == 8 - padding
    assert positions.max() == 8 + padding
    assert len(positions) == (2 * padding + 1) ** 2
    assert counts.min() > 15
    white = Crop(0, padding, "zero")(np.full((count, 1, 16, 16), 255, dtype=np.uint8), in_order(0, count))
    assert set(np.unique(white)) == {0, 255}
    assert (white.sum(axis=(1, 2, 3)) >= 255 * (16 - padding) ** 2).all()


def test_a_reflected_border_mirrors_the_image() -> None:
    """The same windows as with a black border, and inside of the image the same pixels."""
    batch, samples = noise(), in_order(0, 64)
    black, mirrored = (Crop(0, 4, mode)(batch, samples) for mode in ("zero", "reflect"))
    assert (mirrored[black > 0] == black[black > 0]).all()
    assert (black == 0).any()
    assert (mirrored > 0).all()
    # The column next to the image's edge is its second one, not its first: only the edge itself is not repeated.
    rising = np.tile(np.arange(32, dtype=np.uint8) * 8, (64, 1, 32, 1))
    row = Crop(0, 4, "reflect")(rising, samples)[:, 0, 0].astype(np.int64) // 8
    assert (np.abs(np.diff(row, axis=1)) == 1).all()


def test_shifts_reach_a_fifth_of_each_side_and_no_further() -> None:
    """F12: 0.2 of 20 rows and of 40 columns are 4 and 8 pixels, independently of each other."""
    marked = np.zeros((6000, 1, 20, 40), dtype=np.uint8)
    marked[:, 0, 10, 20] = 1
    positions, counts = offsets(Shift(0, 0.2)(marked, in_order(0, 6000)))
    assert {tuple(p) for p in positions} == {(y, x) for y in range(6, 15) for x in range(12, 29)}
    assert counts.min() > 12


def test_a_shift_repeats_the_border() -> None:
    """F12: Keras calls it fill_mode nearest."""
    batch = noise()
    out = Shift(0, 0.2)(batch, in_order(0, 64))
    seen = set()
    for image, shifted in zip(batch, out, strict=True):
        padded = np.pad(image, ((0, 0), (6, 6), (6, 6)), mode="edge")
        places = [(y, x) for y in range(13) for x in range(13) if (padded[:, y : y + 32, x : x + 32] == shifted).all()]
        assert len(places) == 1
        seen |= set(places)
    assert len(seen) > 30


def test_a_fraction_means_what_it_says() -> None:
    """29 of 100 pixels, though 0.29 * 100 is a little less in floating point."""
    marked = np.zeros((2000, 1, 1, 100), dtype=np.uint8)
    marked[:, 0, 0, 50] = 1
    positions, _ = offsets(Shift(0, 0.29)(marked, in_order(0, 2000)))
    assert (positions[:, 1].min(), positions[:, 1].max()) == (21, 79)


def test_half_of_the_images_are_mirrored() -> None:
    """F9."""
    batch = noise(1000)
    out = Flip(0, alternate=False)(batch, in_order(0, 1000))
    flipped = (out == batch[..., ::-1]).all(axis=(1, 2, 3))
    assert ((out == batch).all(axis=(1, 2, 3)) != flipped).all()
    assert 430 < flipped.sum() < 570
    assert (mirror(batch[:1], np.array([True])) == batch[:1, :, :, ::-1]).all()


def test_an_alternating_flip_shows_both_sides_in_any_two_epochs() -> None:
    batch = noise(1000)
    flip = Flip(0, alternate=True)
    sides = [(flip(batch, in_epoch(epoch, 1000)) != batch).any(axis=(1, 2, 3)) for epoch in range(4)]
    assert 430 < sides[0].sum() < 570
    assert (sides[1] == ~sides[0]).all()
    assert (sides[2] == sides[0]).all()
    assert (sides[3] == sides[1]).all()
    at_random = Flip(0, alternate=False)(batch, in_epoch(1, 1000))
    assert (at_random != flip(batch, in_epoch(1, 1000))).any()
