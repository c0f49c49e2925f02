"""From the bytes of a file to the pixels that are wanted of it: right side up, in RGB. The only file that imports cv2.

A JPEG is decoded at the smallest of the scales 1, 1/2, 1/4, 1/8 at which the window has as many pixels as are wanted;
then the window is halved by the mean of 2 x 2 pixels as often as it has twice as many, and scaled by linear
interpolation. All of that is in whole numbers, and has one result on every processor. What OpenCV does not do as
Pillow does goes through Pillow: CMYK, PNG and others in disguise, palettes, 16 bits, transparency, images that EXIF
turns. Which window is wanted is for `framing.py`.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from lockstep import imagefile
from lockstep.errors import UserError

Pixels = npt.NDArray[np.uint8]
"""height x width x 3"""

SCALES = (8, 4, 2, 1)
"""By which OpenCV can divide the sides of a JPEG while it decodes."""


@dataclass(frozen=True)
class Window:
    """A part of an image, in its pixels."""

    left: int
    top: int
    width: int
    height: int


class Broken(Exception):  # noqa: N818
    """The bytes are no image, or half of one, or one that is too large to be decoded."""


def square(data: bytes, side: int) -> Pixels:
    """The whole image scaled to side x side, whatever its shape."""
    return cut(data, lambda width, height: Window(0, 0, width, height), side)


def cut(data: bytes, choose: Callable[[int, int], Window], side: int) -> Pixels:
    """A window scaled to side x side; `choose` is given width and height of the image when it is right side up."""
    cv2 = _cv2()
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > imagefile.MAX_PIXELS:
                raise Broken(f"it has {image.width} x {image.height} pixels")
            if _suits_opencv(image, data):
                window = choose(image.width, image.height)
                scale = scale_for(window, side)
                found = _decoded(data, image.width, image.height, scale)
                if found is not None:
                    part = _part(found, window, scale)
                    return cv2.cvtColor(_scaled(part, side), cv2.COLOR_BGR2RGB)  # type: ignore[no-any-return]
            pixels = np.asarray(imagefile.in_rgb(image))
    except Broken:
        raise
    except Image.DecompressionBombError:
        raise Broken("it has too many pixels") from None
    except UnidentifiedImageError:  # whose text names an object in memory
        raise Broken("it is no image of a kind that is known") from None
    except Exception as error:  # a decoder may raise anything when a file is broken
        raise Broken(str(error)) from None
    return _cut_out(pixels, choose, side)


def cut_image(image: Image.Image, choose: Callable[[int, int], Window], side: int) -> Pixels:
    """The same of an image that somebody has decoded."""
    return _cut_out(np.asarray(imagefile.in_rgb(image)), choose, side)


def _cut_out(pixels: Pixels, choose: Callable[[int, int], Window], side: int) -> Pixels:
    return _scaled(_part(pixels, choose(pixels.shape[1], pixels.shape[0]), 1), side)


def check_installed() -> None:
    """One sentence before the start instead of a traceback in a worker."""
    if "cv2" not in sys.modules and importlib.util.find_spec("cv2") is None:
        raise UserError("images are decoded by OpenCV, which is missing: pip install 'lockstep-train[imagenet]'")


def scale_for(window: Window, side: int) -> int:
    """The largest divisor that leaves a window of at least side x side pixels."""
    shorter = min(window.width, window.height)
    return next((scale for scale in SCALES if shorter // scale >= side), 1)


def _suits_opencv(image: Image.Image, data: bytes) -> bool:
    """A whole JPEG in grey or in colour that no EXIF turns. One that does not end as it should is for Pillow, which
    knows half a file: some versions of OpenCV make the rest of it grey."""
    if image.format not in ("JPEG", "MPO") or image.mode not in ("RGB", "L") or not data.endswith(b"\xff\xd9"):
        return False
    if "exif" not in image.info and "xmp" not in image.info:
        return True
    try:
        return bool(image.getexif().get(ExifTags.Base.Orientation, 1) == 1)
    except Exception:  # nonsense in place of EXIF turns nothing
        return True


def _decoded(data: bytes, width: int, height: int, scale: int) -> Pixels | None:
    """The image in BGR with its sides divided; None where OpenCV fails or finds another size."""
    cv2 = _cv2()
    flag = cv2.IMREAD_COLOR if scale == 1 else getattr(cv2, f"IMREAD_REDUCED_COLOR_{scale}")
    try:
        found: Pixels | None = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    fits = found is not None and found.shape == (-(-height // scale), -(-width // scale), 3)
    return found if fits else None


def _part(pixels: Pixels, window: Window, scale: int) -> Pixels:
    """The window of an image whose sides were divided."""
    left, top = window.left // scale, window.top // scale
    return pixels[top : top + max(1, window.height // scale), left : left + max(1, window.width // scale)]


def _scaled(part: Pixels, side: int) -> Pixels:
    cv2 = _cv2()
    while min(part.shape[:2]) >= 2 * side:
        height, width = part.shape[0] // 2, part.shape[1] // 2
        part = cv2.resize(part[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA)
    if part.shape[:2] == (side, side):
        return np.ascontiguousarray(part)
    scaled: Pixels = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
    return scaled


_lock = threading.Lock()


def _cv2() -> Any:
    """OpenCV with nothing in it that depends on the machine: no threads of its own, no library of the maker of the
    processor. It cannot be imported by two threads at once."""
    with _lock:
        return _prepared()


@cache
def _prepared() -> Any:
    check_installed()
    import cv2

    cv2.setNumThreads(0)
    cv2.ipp.setUseIPP(False)
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # the size is looked at
    return cv2
