"""The mean image that `lockstep data mean` wrote: its middle is what training and evaluation subtract."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep.config import Data
from lockstep.errors import UserError


def fingerprint(data: Data) -> dict[str, str]:
    """The checksum of the file, if one is subtracted."""
    if data.standardize != "mean-image" or data.mean_image is None:
        return {}
    return {"mean_image": hashlib.sha256(Path(data.mean_image).read_bytes()).hexdigest()}


def load(data: Data, image_shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """As channels x height x width, of the size of the images."""
    path, (channels, height, width) = data.mean_image, image_shape
    if path is None:
        raise UserError(
            'data.standardize is "mean-image": write one with `lockstep data mean` and give it with '
            "--set data.mean_image=FILE.npy"
        )
    try:
        found = np.load(Path(path), allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"there is no mean image {path}: write one with `lockstep data mean`") from None
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is not a mean image: {error}") from None
    if (
        not isinstance(found, np.ndarray)
        or found.ndim != 3
        or found.shape[2] != channels
        or found.dtype.kind not in "fu"
        or not np.isfinite(found).all()
    ):
        raise UserError(f"{path} is not a mean image: it must have height x width x {channels} finite numbers")
    if found.shape[0] < height or found.shape[1] < width:
        raise UserError(
            f"the mean image {path} has {found.shape[1]} x {found.shape[0]} pixels, less than the {width} x {height} "
            "of the images: write a larger one with `lockstep data mean`"
        )
    top, left = (found.shape[0] - height) // 2, (found.shape[1] - width) // 2
    middle = found[top : top + height, left : left + width].transpose(2, 0, 1)
    return np.ascontiguousarray(middle, dtype=np.float32)
