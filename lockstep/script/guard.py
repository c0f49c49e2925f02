"""Looks at leaf boundaries for what would cost the bits: numbers drawn, and weights changed, where workers differ.

How many leaves a worker has computed depends on how many workers there are, and so does what a global generator gives
after them. Inside a leaf generators are seeded by it, so that anything may be drawn there.
"""

from __future__ import annotations

from typing import Any

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
        for name in generators.differing(self._left, generators.states()):
            raise UserError(
                f"the script drew random numbers from {name} outside a leaf, where workers would draw different "
                "ones: draw them inside `for ... in step.leaves()`, or from a generator with a fixed seed"
            )

    def check_update(self) -> None:
        """Refuse a step of the optimizer between two leaves."""
        if self.is_in_leaf:
            raise UserError("optimizer.step() was called inside a leaf: it belongs after `while not step.done`")
