"""Image files as a model takes them: upright, in its colours, cut to its size. The only file here that decodes them.

Whatever is wrong with a file is a UserError, one sentence that names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

MAX_PIXELS = 100_000_000
"""A larger picture is refused before it is decoded: it would need gigabytes."""


class Unclear(UserError):  # noqa: N818
    """Pixels that are numbers of which nothing says what is white."""


def read(path: Path, image_shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A file as channels x height x width."""
    from PIL import Image

    with told(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is looked at below
        with Image.open(path) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise UserError(f"{path} has {width} x {height} pixels: {_TOO_LARGE}")
            return to_array(image, image_shape)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file that is decoded meanwhile is one sentence that names it."""
    if path.is_dir():
        raise UserError(f"{path} is a directory: name the images in it, as {path}/*.png")
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except Image.DecompressionBombError:
        raise UserError(f"{path} has too many pixels: {_TOO_LARGE}") from None
    except UnidentifiedImageError:
        raise UserError(f"{path} is not an image, or of a kind that is not known") from None
    except UserError as error:
        if isinstance(error, Unclear):
            raise UserError(f"{path} cannot be read as an image: {error}") from None
        raise
    except Exception as error:  # a decoder may raise anything when a file is broken
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read as an image: {reason}") from None


_TOO_LARGE = f"at most {MAX_PIXELS // 10**6} million are read, make it smaller"


def to_array(image: Image.Image, image_shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Scaled so that the shorter side fits, the middle cut out, as channels x height x width."""
    import numpy as np
    from PIL import Image, ImageOps

    channels, height, width = image_shape
    upright = _upright(image)
    coloured = upright.convert("L" if channels == 1 else "RGB")
    fitted = ImageOps.fit(coloured, (width, height), method=Image.Resampling.BICUBIC)
    array = np.asarray(fitted, dtype=np.uint8).reshape(height, width, -1)
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def in_rgb(image: Image.Image) -> Image.Image:
    """Right side up, in RGB, at its own size."""
    return _upright(image).convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    _check_range(image)
    return _on_white(_in_eight_bits(ImageOps.exif_transpose(image)))


def _check_range(image: Image.Image) -> None:
    """Pillow would cut off what is above 255, so that floats from 0 to 1 became black."""
    is_float = image.mode == "F"
    if is_float or (image.mode == "I" and image.format == "TIFF"):  # in other formats these are 16 bits
        kind = "floats" if is_float else "whole numbers of 32 bits"
        raise Unclear(f"its pixels are {kind}, and nothing says which of them is white, so convert it to 8 bits")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Grey images of 16 bits, which Pillow would cut off at 255."""
    import numpy as np
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    """What is transparent may have any colour below, which nobody sees."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
