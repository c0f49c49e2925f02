"""Images that a model cannot take: what a built-in one, or one of timm, raises is told in a sentence. What a model of
the user's own raises is shown as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lockstep import references
from lockstep.config import Model
from lockstep.errors import UserError

OF_SHAPES = (RuntimeError, ValueError, AssertionError, IndexError)
"""What torch and timm raise over shapes. Those that derive from them say something else: memory, the compiler."""
OF_MACHINES = ("memory", "CUDA")


@contextmanager
def told(model: Model, shape: Sequence[int]) -> Iterator[None]:
    """Around the first use of a model on a leaf of this shape."""
    try:
        yield
    except OF_SHAPES as error:
        is_of_shapes = type(error) in OF_SHAPES and not any(word in str(error) for word in OF_MACHINES)
        if references.is_reference(model.name) or not is_of_shapes or len(shape) != 4:
            raise
        raise UserError(_sentence(model, shape, str(error))) from None


def _sentence(model: Model, shape: Sequence[int], raised: str) -> str:
    number, _, height, width = shape
    images = "one image" if number == 1 else f"{number} images"
    reason = (raised.strip().splitlines() or ["it does not say why"])[-1].rstrip(".")
    return (
        f"{model.name} cannot take {images} of {height} x {width} pixels ({reason}): {_advice(model, number, height)}"
    )


def _advice(model: Model, number: int, side: int) -> str:
    if model.name.startswith(references.TIMM) and model.options.get("img_size") != side:
        return f"--set model.img_size={side} may help, or take another model"
    if number == 1:
        return "take larger images, a larger batch, or fewer --leaves"
    return "take larger images, or another model"
