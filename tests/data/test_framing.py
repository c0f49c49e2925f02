"""Windows: pure functions of (seed, epoch, sample, size), of the shapes that the papers say."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.config import Data
from lockstep.data import framing
from lockstep.data.decode import Window
from lockstep.data.framing import cut_out, evaluation_frame, random_resized, training_frames, with_short_side
from lockstep.data.order import Samples


def many(
    data: Data, count: int = 2000, seed: int = 0, epoch: int = 0, size: tuple[int, int] = (500, 375)
) -> list[Window]:
    samples = Samples(epoch=np.full(count, epoch), index=np.arange(count))
    return [frame(*size) for frame in training_frames(data, seed, samples)]


def test_a_window_depends_on_seed_epoch_and_sample_alone() -> None:
    data = Data(framing="random-resized")
    whole = many(data)
    one = Samples(epoch=np.array([0]), index=np.array([1234]))
    assert training_frames(data, 0, one)[0](500, 375) == whole[1234]
    assert many(data, seed=1)[:10] != whole[:10]
    assert many(data, epoch=1)[:10] != whole[:10]
    assert len(set(whole)) > 1900


def test_random_resized_windows_have_the_areas_and_ratios_of_the_paper() -> None:
    """F22: 8 to 100 % of the area, 3/4 to 4/3, inside the image, anywhere in it."""
    windows = many(Data(framing="random-resized"))
    areas = np.array([w.width * w.height for w in windows]) / (500 * 375)
    ratios = np.array([w.width / w.height for w in windows])
    assert 0.075 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.4 < areas.mean() < 0.55
    assert 0.74 < ratios.min() < 0.77
    assert 1.3 < ratios.max() < 1.35
    assert abs(np.log(ratios).mean()) < 0.03
    assert all(w.left >= 0 and w.left + w.width <= 500 and w.top >= 0 and w.top + w.height <= 375 for w in windows)
    assert min(w.left for w in windows) == 0
    assert max(w.left + w.width for w in windows) == 500


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((1000, 10), (493, 0, 13, 10)),
        ((10, 1000), (0, 493, 10, 13)),
        ((1, 1), (0, 0, 1, 1)),
        ((400, 300), (0, 0, 400, 300)),
    ],
)
def test_after_ten_tries_it_is_the_middle(size: tuple[int, int], window: tuple[int, int, int, int]) -> None:
    """Of an image that is too narrow for any window that was drawn."""
    hopeless = [0.99, 0.5] * framing.NUM_TRIES + [0.0, 0.0]
    assert random_resized(hopeless if size != (400, 300) else [1.01, 0.5] * 10 + [0, 0], *size) == Window(*window)


def test_square_windows_are_random_crops_of_the_squeezed_image() -> None:
    """F22: 224 of 256 pixels, in both directions, of an image that was scaled to 256 x 256."""
    windows = many(Data(framing="square", side=224, resize=(256, 256)), size=(512, 1024))
    assert {(w.width, w.height) for w in windows} == {(448, 896)}
    assert {w.left for w in windows} == {2 * offset for offset in range(33)}
    assert {w.top for w in windows} == {4 * offset for offset in range(33)}


def test_short_sides_are_drawn_between_the_two_numbers() -> None:
    """F22: the short side is 256 to 512, so 224 pixels are 7/8 down to 7/16 of it."""
    windows = many(Data(framing="short-side", side=224, resize=(256, 512)), size=(5120, 2560))
    sides = {w.height for w in windows}
    assert min(sides) == pytest.approx(1120, abs=1)
    assert max(sides) == pytest.approx(2240, abs=1)
    assert len(sides) > 200
    assert all(abs(w.width - w.height) <= 1 for w in windows)
    assert all(w.left >= 0 and w.left + w.width <= 5120 and w.top >= 0 and w.top + w.height <= 2560 for w in windows)


def test_evaluation_takes_the_middle() -> None:
    """F22: of a short side of 256, and in "square" of both."""
    assert evaluation_frame(Data(framing="short-side"))(512, 1024) == Window(32, 288, 448, 448)
    assert evaluation_frame(Data(framing="random-resized"))(1024, 512) == Window(288, 32, 448, 448)
    assert evaluation_frame(Data(framing="square"))(512, 1024) == Window(32, 64, 448, 896)
    assert evaluation_frame(Data(framing="random-resized", side=300))(600, 900) == Window(0, 150, 600, 600)


def test_small_and_odd_images_have_windows_too() -> None:
    for width, height in ((1, 1), (1, 500), (7, 3), (223, 225)):
        for kind in ("square", "random-resized", "short-side"):
            data = Data(framing=kind)
            for window in [*many(data, 50, size=(width, height)), evaluation_frame(data)(width, height)]:
                assert window.width >= 1
                assert window.height >= 1
                assert 0 <= window.left <= width - window.width
                assert 0 <= window.top <= height - window.height


def test_the_long_side_follows_the_short_one() -> None:
    assert with_short_side(300, 600, 256) == (256, 512)
    assert with_short_side(600, 300, 256) == (512, 256)
    assert cut_out(300, 600, 256, 512, 256) == Window(0, 150, 300, 300)
