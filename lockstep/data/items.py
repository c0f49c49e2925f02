"""Items of a data set of the user's own, (input, target), as arrays: what they may be, and that all are alike.

Inputs are uint8 images or floats of any shape, targets numbers of classes or floats. Who reads the items is in
`own.py` and `processes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.data.source import Inputs, Targets
from lockstep.errors import UserError

Raw = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Inputs and targets as the user's code gives them, of one item or of several in a row."""
CHANNELS = (1, 3, 4)
"""How many an image may have for its layout to be told from its shape."""


def raw(item: Any) -> Raw:
    """An item as arrays; a UserError says what it should be."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise UserError(f"is {_kind(item)}, not a pair (input, target)")
    return as_array(item[0]), as_array(item[1])


def as_array(value: Any) -> npt.NDArray[Any]:
    """A number, array, tensor or Pillow image as an array. No copy is made where none is needed."""
    if hasattr(value, "detach"):  # a tensor; torch itself need not be imported for this
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    elif hasattr(value, "getbands"):  # a Pillow image
        value = value if value.mode in ("L", "RGB") else value.convert("RGB")
    return np.asarray(value)


def stacked(items: list[Raw], indices: list[int]) -> Raw:
    """Several items in one array each; they must be alike."""
    for which, name in ((0, "an input"), (1, "a target")):
        expected = items[0][which]
        for index, item in zip(indices, items, strict=True):
            if item[which].shape != expected.shape or item[which].dtype != expected.dtype:
                raise UserError(
                    f"item {index} has {name} of {form(item[which])}, and item {indices[0]} of {form(expected)}: make "
                    "all of one shape and type in __getitem__"
                )
    return np.stack([one for one, _ in items]), np.stack([one for _, one in items])


def form(array: npt.NDArray[Any]) -> str:
    return f"shape {' x '.join(map(str, array.shape)) or '()'} ({array.dtype})"


def to_inputs(found: npt.NDArray[Any]) -> Inputs:
    """Of n inputs: images as n x channels x height x width in uint8, anything else in float32."""
    if found.dtype == np.uint8:
        return _channels_first(found)
    if np.issubdtype(found.dtype, np.floating):
        return np.ascontiguousarray(found, dtype=np.float32)
    raise UserError(f"inputs are of type {found.dtype}: return images in uint8, or floats")


def _channels_first(found: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if found.ndim == 3:
        return np.ascontiguousarray(found[:, None])
    if found.ndim == 4 and found.shape[1] in CHANNELS:
        return np.ascontiguousarray(found)
    if found.ndim == 4 and found.shape[3] in CHANNELS:
        return np.ascontiguousarray(found.transpose(0, 3, 1, 2))
    shape = " x ".join(map(str, found.shape[1:])) or "()"
    raise UserError(
        f"inputs in uint8 are images, height x width with 1, 3 or 4 channels before or behind, and not {shape}: return "
        "anything else as floats"
    )


def to_targets(found: npt.NDArray[Any]) -> Targets:
    """Of n targets: the numbers of their classes in int64, anything else in float32."""
    if np.issubdtype(found.dtype, np.floating):
        return np.ascontiguousarray(found, dtype=np.float32)
    if found.ndim == 1 and (np.issubdtype(found.dtype, np.integer) or found.dtype == np.bool_):
        return found.astype(np.int64)
    raise UserError(f"a target is the number of a class, or floats, and not {form(found[0])}")


@dataclass(frozen=True)
class Form:
    """What all items of a data set are like."""

    input_shape: tuple[int, ...]
    holds_images: bool
    target_shape: tuple[int, ...]
    has_classes: bool

    @staticmethod
    def of(inputs: Inputs, targets: Targets) -> Form:
        holds_images, has_classes = inputs.dtype == np.uint8, targets.dtype == np.int64
        return Form(inputs.shape[1:], holds_images, targets.shape[1:], has_classes)

    def __str__(self) -> str:
        inputs = f"{'images' if self.holds_images else 'floats'} of shape {self.input_shape}"
        targets = "classes" if self.has_classes else f"floats of shape {self.target_shape}"
        return f"inputs are {inputs}, targets {targets}"


def _kind(item: Any) -> str:
    return f"a {type(item).__name__} of {len(item)}" if isinstance(item, tuple | list) else f"a {type(item).__name__}"
