"""A moving average of weights and floating-point buffers (BatchNorm statistics), which evaluation uses.

Both are averaged with the same decay, so that weights and statistics fit each other; integer buffers are the live ones.
The average is a part of the state: checkpoints hold it, joiners copy it, a verification compares it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lockstep.exchange.flat import Layout


class Average:
    def __init__(self, decay: float, layout: Layout, weights: Tensor, statistics: Tensor) -> None:
        self._decay = decay
        self._places = [*layout.gradients, *layout.statistics]
        self._live = (weights, statistics)
        self._flat = torch.cat(self._live)
        self._parts = self._flat.split([len(weights), len(statistics)])

    def update(self, steps: range) -> None:
        """Take in the live weights after these steps: elementwise, and a pure function of their numbers. Several at
        once let the average forget as much as one after the other would."""
        decay = math.prod(decay_at(step, self._decay) for step in steps)
        for part, live in zip(self._parts, self._live, strict=True):
            part.lerp_(live, 1.0 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Meanwhile the model has the averaged weights and statistics."""
        before = [live.clone() for live in self._live]
        self._put(self._parts)
        try:
            yield
        finally:
            self._put(before)

    def _put(self, values: tuple[Tensor, ...] | list[Tensor]) -> None:
        for live, value in zip(self._live, values, strict=True):
            live.copy_(value)

    def named(self) -> dict[str, Tensor]:
        return {place.name: place.view(self._flat) for place in self._places}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a stored average; where there is none, as in older checkpoints, from the live weights."""
        for part, live in zip(self._parts, self._live, strict=True):
            part.copy_(live)
        for name, tensor in self.named().items() if state else ():
            tensor.copy_(state[name])


def decay_at(step: int, decay: float) -> float:
    """The decay in a step, from 0: smaller in the first ones, so that the initial weights do not linger."""
    return min(decay, (1 + step) / (10 + step))
