"""The flat vector: one layout, independent of the number of workers.

    gradients | floating-point buffers (BatchNorm statistics) | changes of integer buffers | loss and counts

Where weights travel (`averaging`) they have the place of the gradients, and what the optimizer keeps for them, its
slots, stands before the loss.

Parameters, and the gradients of every contribution, are views into flat tensors, so that what travels is one
contiguous piece of memory. Tensors start at multiples of 64 bytes. What is added to what is decided in `tree.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep.errors import UserError
from lockstep.exchange.tree import SLICE_ALIGNMENT

NUM_COUNTS = 3
"""Behind everything else: the mean loss of the leaf, its number of top1 hits, its number of top5 hits; where the recipe
has a metric of its own, there is one count more, its sum over the leaf."""


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a flat one."""

    name: str
    offset: int
    shape: torch.Size
    channels_last: bool

    def view(self, flat: Tensor) -> Tensor:
        piece = flat[self.offset : self.offset + self.shape.numel()]
        if self.channels_last:
            out, channels, height, width = self.shape
            return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
        return piece.view(self.shape)


def _places(tensors: Sequence[tuple[str, Tensor]], start: int, channels_last: bool) -> tuple[list[Place], int]:
    places = []
    offset = start
    for name, tensor in tensors:
        places.append(Place(name, offset, tensor.shape, channels_last and tensor.dim() == 4))
        offset += -(-tensor.numel() // SLICE_ALIGNMENT) * SLICE_ALIGNMENT
    return places, offset


@dataclass(frozen=True)
class Layout:
    """The places of everything that a contribution holds."""

    gradients: list[Place]
    statistics: list[Place]
    integers: list[Place]
    slots: list[Place]
    statistics_start: int
    integers_start: int
    counts_start: int
    length: int

    @staticmethod
    def of(model: nn.Module, channels_last: bool, num_counts: int = NUM_COUNTS) -> Layout:
        check_model(model)
        floats = [(n, b) for n, b in model.named_buffers() if b.is_floating_point()]
        integers = [(n, b) for n, b in model.named_buffers() if not b.is_floating_point()]
        gradients, statistics_start = _places(list(model.named_parameters()), 0, channels_last)
        statistics, integers_start = _places(floats, statistics_start, False)
        integer_places, counts_start = _places(integers, integers_start, False)
        length = counts_start + num_counts
        return Layout(gradients, statistics, integer_places, [], statistics_start, integers_start, counts_start, length)

    def with_slots(self, slots: Sequence[tuple[str, Tensor]], channels_last: bool) -> Layout:
        """The same with a place for each of these tensors; everything before them stays where it is."""
        places, counts_start = _places(slots, self.counts_start, channels_last)
        num_counts = self.length - self.counts_start
        return replace(self, slots=places, counts_start=counts_start, length=counts_start + num_counts)


def check_model(model: nn.Module) -> None:
    """Refuse, in one sentence, what cannot be trained by adding flat vectors."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise UserError(f"{name} is not initialised: run the lazy module once inside the model's function")
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype != torch.float32:
            raise UserError(f"{name} has type {tensor.dtype}: keep parameters and buffers in float32")
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise UserError(f"{name} gives sparse gradients: create it with sparse=False")
    if not any(True for _ in model.parameters()):
        raise UserError("the model has no parameters to train")


class Vector:
    """One flat vector: a leaf's contribution, the sum of a subtree, or the reduced result."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.flat = torch.zeros(layout.length, dtype=torch.float32, device=device)
        self.flat_gradients = self.flat[: layout.statistics_start]
        self.gradients = [place.view(self.flat) for place in layout.gradients]
        self.statistics = self.flat[layout.statistics_start : layout.integers_start]
        self.integers = [place.view(self.flat) for place in layout.integers]
        self.slots = [place.view(self.flat) for place in layout.slots]
        self.counts = self.flat[layout.counts_start :]

    def zero_gradients(self) -> None:
        self.flat_gradients.zero_()


class Pool:
    """Vectors that are reused, so that training allocates nothing after the first step."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout = layout
        self._device = device
        self._free: list[Vector] = []

    def take(self) -> Vector:
        return self._free.pop() if self._free else Vector(self._layout, self._device)

    def give(self, vector: Vector) -> None:
        self._free.append(vector)
