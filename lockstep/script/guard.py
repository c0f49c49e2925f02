"""Looks at leaf boundaries for what would cost the bits: numbers drawn, and weights changed, where workers differ.

How many leaves a worker has computed depends on how many workers there are, and so does what a global generator gives
after them. Inside a leaf generators are seeded by it, so that anything may be drawn there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lockstep import generators
from lockstep.errors import UserError


class Guard:
    def __init__(self) -> None:
        self._left: dict[str, Any] | None = None
        """The generators as the last leaf left them; None before the first."""
        self.is_in_leaf = False

    def enter(self) -> None:
        """A leaf begins."""
        self.check()
        self.is_in_leaf = True

    def leave(self) -> None:
        """A leaf ends."""
        self._left = generators.states()
        self.is_in_leaf = False

    def check(self) -> None:
        """Refuse what was drawn since the last leaf."""
        if self._left is None:
            return
        now = generators.states()
        for name, before in self._left.items():
            if not _same(before, now[name]):
                raise UserError(
                    f"the script drew random numbers from {name} outside a leaf, where workers would draw different "
                    "ones: draw them inside `for ... in step.leaves()`, or from a generator with a fixed seed"
                )

    def check_update(self) -> None:
        """Refuse a step of the optimizer between two leaves."""
        if self.is_in_leaf:
            raise UserError("optimizer.step() was called inside a leaf: it belongs after `while not step.done`")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one[1], np.ndarray):
        return bool(one[2:] == other[2:]) and np.array_equal(one[1], other[1])
    return bool(one == other)
