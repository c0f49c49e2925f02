"""TrivialAugment and RandAugment: each operation does what its name says, and all of them occur."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from PIL import Image

from lockstep.data import policy
from lockstep.data.policy import Operation, Policy, apply, from_pillow, operations, to_pillow
from lockstep.data.source import Images, in_order
from lockstep.errors import UserError
from tests.data.test_augment import changed, noise

NAMES = [
    *["identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate", "brightness", "color", "contrast"],
    *["sharpness", "posterize", "solarize", "autocontrast", "equalize"],
]
MOST = 30


def done(
    name: str, image: Images, bin_: int = MOST, sign: int = 1, of: Literal["trivial", "rand"] = "trivial"
) -> Images:
    operation = operations(of, *image.shape[1:])[NAMES.index(name)]
    return from_pillow(apply(operation, to_pillow(image), bin_, sign)).astype(np.int64)


def test_the_way_to_pillow_and_back_loses_nothing() -> None:
    for channels in (1, 3):
        image = noise(1, channels)[0]
        assert (from_pillow(to_pillow(image)) == image).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("autocontrast", "equalize", "solarize")])
def test_magnitude_zero_leaves_the_image(name: str) -> None:
    image = noise(1)[0]
    assert (done(name, image, bin_=0) == image).all()


def test_geometry() -> None:
    image = noise(1)[0]
    assert (done("translate-x", image, 15) == np.pad(image, ((0, 0), (0, 0), (16, 0)))[:, :, :32]).all()
    assert (done("translate-x", image, 15, sign=-1) == np.pad(image, ((0, 0), (0, 0), (0, 16)))[:, :, 16:]).all()
    assert (done("translate-y", image, 15) == np.pad(image, ((0, 0), (16, 0), (0, 0)))[:, :32]).all()
    # 9/30 of 150/331 of 32 pixels are 4.35 pixels.
    assert (done("translate-y", image, 9, of="rand") == np.pad(image, ((0, 0), (4, 0), (0, 0)))[:, :32]).all()
    # 20/30 of 135 degrees, counter-clockwise.
    assert (done("rotate", image, 20) == np.rot90(image, axes=(1, 2))).all()
    assert (done("rotate", image, 20, sign=-1) == np.rot90(image, -1, axes=(1, 2))).all()


def test_shearing_moves_each_row_a_little_further() -> None:
    image = noise(1)[0]
    out = done("shear-x", image, 20)
    for row in range(32):
        shift = int(0.66 * (row + 0.5) + 0.5)
        assert (out[:, row, : 32 - shift] == image[:, row, shift:]).all()
        assert (out[:, row, 32 - shift :] == 0).all()
    assert (done("shear-y", image.transpose(0, 2, 1), 20) == out.transpose(0, 2, 1)).all()


def test_colours() -> None:
    image = noise(1)[0]
    assert abs(done("brightness", image, sign=-1) - image * 0.01).max() <= 1
    assert abs(done("brightness", image, of="rand") - np.minimum(image * 1.9, 255)).max() <= 1
    grey = done("color", image, sign=-1)
    assert np.ptp(grey, axis=0).max() <= 4
    assert np.ptp(done("contrast", image, sign=-1)) <= 4
    assert set(np.unique(done("posterize", image))) <= {0, 64, 128, 192}
    assert len(np.unique(done("posterize", image, of="rand"))) == 16
    assert (done("solarize", image) == 255 - image.astype(np.int64)).all()
    half = done("solarize", image, 15)
    assert (half == np.where(image < 128, image, 255 - image.astype(np.int64))).all()
    dull = image // 4 + 100
    stretched = done("autocontrast", dull)
    assert stretched.min() == 0
    assert stretched.max() >= 254
    assert abs(stretched - (dull.astype(np.float64) - dull.min()) * 255 / np.ptp(dull)).max() < 3
    levels = np.bincount(done("equalize", (dull // 3)).ravel(), minlength=256)
    assert np.flatnonzero(levels).max() > 240


def test_sharpness_smooths_to_one_side_and_sharpens_to_the_other() -> None:
    image = noise(1)[0] // 2 + 64

    def roughness(pixels: Images) -> float:
        return float(abs(np.diff(pixels.astype(np.int64), axis=2)).mean())

    assert roughness(done("sharpness", image, sign=-1)) < 0.8 * roughness(image)
    assert roughness(done("sharpness", image)) > 1.2 * roughness(image)


@pytest.mark.parametrize(("name", "per_image"), [("trivial", 1), ("rand", 2)])
def test_all_operations_magnitudes_and_signs_occur(
    name: Literal["trivial", "rand"], per_image: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int, int]] = []
    space = operations(name, 32, 32)

    def note(operation: Operation, image: Image.Image, bin_: int, sign: int) -> Image.Image:
        drawn.append((space.index(operation), bin_, sign))
        return image

    monkeypatch.setattr(policy, "operations", lambda *_: space)
    monkeypatch.setattr(policy, "apply", note)
    Policy(0, name)(noise(2800), in_order(0, 2800))
    assert len(drawn) == 2800 * per_image
    chosen, bins, signs = (np.array(column) for column in zip(*drawn, strict=True))
    expected = len(drawn) / len(NAMES)
    assert abs(np.bincount(chosen, minlength=len(NAMES)) / expected - 1).max() < 0.3
    assert set(bins) == (set(range(31)) if name == "trivial" else {9})
    assert abs(signs.mean()) < 0.1
    if name == "rand":
        pairs = set(zip(chosen[::2], chosen[1::2], strict=True))
        assert len(pairs) == len(NAMES) ** 2


@pytest.mark.parametrize("name", ["trivial", "rand"])
@pytest.mark.parametrize("channels", [1, 3])
def test_most_images_change(name: Literal["trivial", "rand"], channels: int) -> None:
    batch = noise(400, channels)
    out = Policy(0, name)(batch, in_order(0, 400))
    assert out.shape == batch.shape
    assert changed(out, batch) > 0.7


def test_images_that_are_no_pictures_are_refused() -> None:
    with pytest.raises(UserError, match=r"data\.policy is for images of 1 or 3 channels, and these have 2"):
        Policy(0, "trivial")(noise(4, 2), in_order(0, 4))
