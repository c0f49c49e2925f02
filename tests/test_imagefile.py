"""Image files of every kind become what a model takes; what is broken is one sentence."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lockstep import imagefile
from lockstep.errors import UserError

SHAPE = (3, 8, 8)
RED = (200, 30, 40)


def quadrants(width: int = 16, height: int = 16) -> Image.Image:
    """Red at the top left, and grey elsewhere."""
    image = Image.new("RGB", (width, height), (90, 90, 90))
    image.paste(RED, (0, 0, width // 2, height // 2))
    return image


def is_red(pixel: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bool:
    return bool(np.abs(pixel.astype(int) - RED).max() < 25)


def where_red(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[str]:
    places = {"top left": (1, 1), "top right": (1, -2), "bottom left": (-2, 1), "bottom right": (-2, -2)}
    return [name for name, (row, column) in places.items() if is_red(array[:, row, column])]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.png", "RGB"),
        ("a.png", "RGBA"),
        ("a.png", "P"),
        ("a.gif", "P"),
        ("a.jpg", "RGB"),
        ("a.jpg", "CMYK"),
        ("a.webp", "RGB"),
        ("a.bmp", "RGB"),
    ],
)
def test_every_kind_becomes_rgb(tmp_path: Path, name: str, mode: str) -> None:
    quadrants(64, 64).convert(mode).save(tmp_path / name)
    array = imagefile.read(tmp_path / name, SHAPE)
    assert (array.shape, array.dtype.name, array.flags["C_CONTIGUOUS"]) == (SHAPE, "uint8", True)
    assert where_red(array) == ["top left"]


def test_grey_of_8_and_16_bits(tmp_path: Path) -> None:
    """16 bits are scaled, not cut off."""
    values = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "eight.png")
    Image.fromarray(values.astype(np.uint16) * 256).save(tmp_path / "sixteen.png")
    for name in ("eight.png", "sixteen.png"):
        assert (imagefile.read(tmp_path / name, SHAPE) == values).all()
        assert (imagefile.read(tmp_path / name, (1, 8, 8)) == values).all()


@pytest.mark.parametrize(("dtype", "kind"), [(np.float32, "floats"), (np.int32, "whole numbers of 32 bits")])
def test_numbers_of_which_nobody_knows_what_is_white_are_refused(tmp_path: Path, dtype: type, kind: str) -> None:
    """Floats from 0 to 1 would be black, and of 32 bits only the highest would be seen."""
    picture = Image.fromarray(np.ones((8, 8), dtype))
    picture.save(tmp_path / "a.tiff")
    sentence = f"its pixels are {kind}, and nothing says which of them is white, so convert it to 8 bits"
    with pytest.raises(UserError) as error:
        imagefile.read(tmp_path / "a.tiff", SHAPE)
    assert str(error.value) == f"{tmp_path}/a.tiff cannot be read as an image: {sentence}"
    with Image.open(tmp_path / "a.tiff") as image, pytest.raises(UserError) as error:
        imagefile.in_rgb(image)
    assert str(error.value) == sentence


def test_grey_of_16_bits_is_scaled_in_every_format_that_has_it(tmp_path: Path) -> None:
    values = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    for name in ("a.png", "a.tiff", "a.ppm"):
        Image.fromarray(values.astype(np.uint16) * 256).save(tmp_path / name)
        assert (imagefile.read(tmp_path / name, SHAPE) == values).all()


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert (imagefile.read(tmp_path / "a.png", SHAPE) == 255).all()


@pytest.mark.parametrize(
    ("orientation", "place"), [(1, "top left"), (3, "bottom right"), (6, "top right"), (2, "top right")]
)
def test_a_camera_that_was_turned(tmp_path: Path, orientation: int, place: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    quadrants(64, 64).save(tmp_path / "a.jpg", exif=exif)
    assert where_red(imagefile.read(tmp_path / "a.jpg", SHAPE)) == [place]


@pytest.mark.parametrize(("width", "height"), [(64, 16), (16, 64), (4, 2), (8, 8)])
def test_the_middle_is_cut_out_at_the_scale_of_the_shorter_side(tmp_path: Path, width: int, height: int) -> None:
    image = Image.new("RGB", (width, height), (0, 0, 0))
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    image.paste((250, 250, 250), (left, top, left + side, top + side))
    image.save(tmp_path / "a.png")
    array = imagefile.read(tmp_path / "a.png", (3, 8, 8))
    assert array[:, 2:-2, 2:-2].min() > 240  # what is beside the cut shines through at its border
    assert array.mean() > 220
    assert imagefile.read(tmp_path / "a.png", (3, 4, 12)).shape == (3, 4, 12)


def test_an_image_of_the_right_size_stays_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.RandomState(0).randint(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert (imagefile.read(tmp_path / "a.png", SHAPE) == pixels.transpose(2, 0, 1)).all()


def png_of_size(width: int, height: int) -> bytes:
    """A few bytes that say they are a large picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    ("name", "contents", "sentence"),
    [
        ("huge.png", png_of_size(60_000, 60_000), "too many pixels: at most 100 million are read, make it smaller"),
        ("large.png", png_of_size(12_000, 12_000), "has 12000 x 12000 pixels: at most 100 million"),
        ("short.png", png_of_size(100, 100), "cannot be read as an image"),
        ("text.png", b"hello", "is not an image"),
        ("empty.png", b"", "is not an image"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, name: str, contents: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(UserError) as raised:
        imagefile.read(tmp_path / name, SHAPE)
    assert name in str(raised.value)
    assert sentence in str(raised.value)


def test_every_cut_of_a_file_is_read_or_refused(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg", "a.gif", "a.webp"):
        quadrants(32, 32).save(tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        for stop in range(0, len(whole), max(1, len(whole) // 25)):
            (tmp_path / f"cut-{name}").write_bytes(whole[:stop])
            try:
                imagefile.read(tmp_path / f"cut-{name}", SHAPE)
            except UserError:
                continue


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        imagefile.read(tmp_path / "nothing.png", SHAPE)
    with pytest.raises(UserError, match="is a directory"):
        imagefile.read(tmp_path, SHAPE)
