"""What a worker makes for loggers to show."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lockstep import pictures
from lockstep.histogram import Histogram
from lockstep.pictures import MAX_PIXELS, Pictures, grid, histogram
from lockstep.recipes import RECIPES
from tests.alone import set_up


def sent_by(every: int, wanted: bool = True) -> list[dict[str, Any]]:
    """What a lone worker sends in a run of four steps whose second and fourth are evaluated."""
    recipe = replace(RECIPES["demo"](), leaves=4, global_batch=16, epochs=None, steps=4)
    replica, strategy, step = set_up(recipe)
    sent = list[dict[str, Any]]()
    step.membership.send = sent.append  # type: ignore[assignment, method-assign]
    shown = Pictures(wanted, every, replica, strategy, step.membership)
    shown.show_samples(step)
    shown.show_histograms(step, evaluated=True)  # before the first step there is no gradient
    for index in (1, 2, 3, 4):
        step.index = index
        shown.show_histograms(step, evaluated=index % 2 == 0)
    strategy.close()
    return sent


@pytest.mark.parametrize(("every", "steps"), [(0, [2, 4]), (3, [3]), (1, [1, 2, 3, 4])])
def test_histograms_come_at_evaluations_or_every_so_many_steps(every: int, steps: list[int]) -> None:
    """F71."""
    image, *rest = sent_by(every)
    assert (image["type"], image["tag"], image["step"]) == ("image", "train/samples", 0)
    assert [message["step"] for message in rest] == steps
    assert all(message["type"] == "histograms" for message in rest)


def test_without_a_logger_that_shows_them_no_pictures_are_made() -> None:
    assert sent_by(1, wanted=False) == []


def test_a_model_of_too_many_tensors_gets_no_histograms_and_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_TENSORS", 3)
    assert [message["type"] for message in sent_by(1)] == ["image", "note"]
    assert "more than 3: no histograms are made" in sent_by(1)[-1]["text"]


def test_a_grid_has_every_image_at_its_place() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * 10 + np.zeros((5, 3, 4, 6), dtype=np.uint8)
    png = grid(images)
    assert png is not None
    picture = np.asarray(Image.open(io.BytesIO(png)))
    assert picture.shape == (2 * 4, 3 * 6, 3)
    assert [int(picture[row * 4, column * 6, 0]) for row in range(2) for column in range(3)] == [0, 10, 20, 30, 40, 0]


@pytest.mark.parametrize(("shape", "size"), [((3, 1, 8, 8), (16, 16)), ((64, 3, 224, 224), (1120, 896))])
def test_a_grid_takes_grey_images_and_stays_small(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    png = grid(np.zeros(shape, dtype=np.uint8))
    assert png is not None
    assert Image.open(io.BytesIO(png)).size == size
    assert size[0] * size[1] <= MAX_PIXELS


def test_images_without_colours_give_no_grid() -> None:
    assert grid(np.zeros((2, 5, 4, 4), dtype=np.uint8)) is None


def test_a_histogram_counts_every_number_once() -> None:
    values = np.concatenate([np.linspace(-2, 3, 1001), [np.inf, np.nan]]).astype(np.float32)
    found = histogram(values)
    assert found is not None
    assert sum(found.counts) == 1001
    assert (found.minimum, found.maximum, found.low, found.high) == (-2, 3, -2, 3)
    assert len(found.edges) == len(found.counts) + 1 == 31
    assert Histogram.from_plain(vars(found)) == found
    counts, _ = np.histogram(values[:1001].astype(np.float64), bins=np.array(found.edges))
    assert np.abs(counts - np.array(found.counts)).max() <= 1  # a value may lie on an edge


def test_a_histogram_of_one_value_or_none() -> None:
    constant = histogram(np.full(7, 2.0, dtype=np.float32))
    assert constant is not None
    assert sum(constant.counts) == 7
    assert constant.low < 2 < constant.high
    assert histogram(np.array([np.nan], dtype=np.float32)) is None


def test_a_histogram_from_the_network_is_bounded() -> None:
    plain = vars(histogram(np.zeros(3, dtype=np.float32)))
    with pytest.raises(ValueError, match="31 bins"):
        Histogram.from_plain({**plain, "counts": [0] * 31})
