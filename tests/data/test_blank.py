"""Cutout and random erasing: what is hidden, where, how large, how often."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lockstep.data.blank import Cutout, Erase, blank
from lockstep.data.source import Images, in_order
from tests.data.test_augment import noise


def two_colours(count: int) -> Images:
    """Images whose mean colour (64, 128 and 7) is none of their pixels'."""
    images = np.zeros((count, 3, 32, 32), dtype=np.uint8)
    images[:, 0, :, ::2], images[:, 1, :, ::2], images[:, 2, :, ::2] = 128, 255, 14
    return images


def hidden(out: Images) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (out == np.array([64, 128, 7])[:, None, None]).all(axis=1)
    return found


def test_what_is_hidden_has_the_mean_colour_of_the_image() -> None:
    images = two_colours(2)
    out = blank(images, np.array([3, -5]), np.array([9, 2]), np.array([0, 30]), np.array([32, 40]))
    expected = np.zeros((2, 32, 32), dtype=bool)
    expected[0, 3:9], expected[1, :2, 30:] = True, True
    assert (hidden(out) == expected).all()
    assert (out.transpose(0, 2, 3, 1)[~expected] == images.transpose(0, 2, 3, 1)[~expected]).all()


def test_cutout_is_a_square_that_may_reach_over_the_edge() -> None:
    mask = hidden(Cutout(0, 8)(two_colours(3000), in_order(0, 3000)))
    tall, wide = mask.any(axis=2).sum(axis=1), mask.any(axis=1).sum(axis=1)
    assert (mask.sum(axis=(1, 2)) == tall * wide).all()
    assert tall.max() == wide.max() == 8
    assert tall.min() == wide.min() == 4
    # 25 of the 32 rows can be the centre of a whole square.
    assert abs(((tall == 8) & (wide == 8)).mean() - (25 / 32) ** 2) < 0.04
    middle = mask.mean(axis=0)[8:24, 8:24]
    assert abs(middle - 8 * 8 / 32**2).max() < 0.03


def test_a_square_larger_than_the_image_hides_all_of_it() -> None:
    assert hidden(Cutout(0, 65)(two_colours(50), in_order(0, 50))).all()


def test_erasing_has_the_probability_area_and_shape_of_its_paper() -> None:
    mask = hidden(Erase(0, 0.25)(two_colours(8000), in_order(0, 8000)))
    area, tall, wide = mask.sum(axis=(1, 2)), mask.any(axis=2).sum(axis=1), mask.any(axis=1).sum(axis=1)
    assert (area == tall * wide).all()
    erased = area > 0
    assert abs(erased.mean() - 0.25) < 0.02
    share = area[erased] / 32**2
    # The sides are whole pixels, which is a large error for the smallest rectangles.
    assert 0.013 < share.min() < 0.03
    assert 0.31 < share.max() < 0.36
    assert abs(share.mean() - (0.02 + 0.33) / 2) < 0.01
    ratio = np.log(tall[erased] / wide[erased])
    assert abs(ratio.mean()) < 0.05
    assert abs(ratio.std() - np.log(3.3 / 0.3) / 12**0.5) < 0.05
    assert mask.any(axis=0).all()


def test_erasing_never_or_always() -> None:
    batch = noise()
    assert (Erase(0, 0.0)(batch, in_order(0, 64)) == batch).all()
    assert (Erase(0, 1.0)(batch, in_order(0, 64)) != batch).any(axis=(1, 2, 3)).all()
