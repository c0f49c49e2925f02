"""A server's work on its slice: the sums that have come for a step, added in the tree's order as they come. Pure.

What comes twice counts once, whoever computed it: a leaf has the same bits everywhere. Arrays are numpy's, whose
additions of float32 are those of PyTorch, so a server needs no more than this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.exchange import tree
from lockstep.exchange.tree import Node

Part = NDArray[np.float32]

KEPT_RESULTS = 4
"""Results that stay for those who are late; whoever is later copies the state."""


@dataclass(frozen=True)
class Result:
    """The mean of a step over the leaves that it is made of."""

    step: int
    values: Part
    num_leaves: int


class Board:
    """Collects one step after the other. A step is done with all its leaves, or with `wait_for` of them."""

    def __init__(self, num_leaves: int, first_step: int, wait_for: int = 0) -> None:
        self.step = first_step
        """The step that is being collected."""
        self.arrived: dict[int, set[int]] = {}
        """Which leaves of the step each worker has sent."""
        self._num_leaves = num_leaves
        self._wait_for = wait_for or num_leaves
        self._parts: dict[Node, Part] = {}
        self._results: dict[int, Result] = {}

    def result(self, step: int) -> Result | None:
        """None if it is not there yet, or not any more: see `is_gone`."""
        return self._results.get(step)

    def is_gone(self, step: int) -> bool:
        return step < self.step and step not in self._results

    def missing(self) -> list[int]:
        """Leaves of the step that have not come."""
        covered = {leaf for node in self._parts for leaf in tree.leaves_of(node)}
        return [leaf for leaf in range(self._num_leaves) if leaf not in covered]

    def push(self, worker: int, step: int, node: Node, part: Part) -> Result | None:
        """Add a sum to its step, and return the result if that completes it. The part is the board's from now on."""
        if step != self.step:
            return None  # late: the step was done without it
        self.arrived.setdefault(worker, set()).update(tree.leaves_of(node))
        self._add(node, part)
        covered = sum(1 << level for level, _ in self._parts)
        return self._complete(covered) if covered >= self._wait_for else None

    def _add(self, node: Node, part: Part) -> None:
        if any(tree.contains(known, node) for known in self._parts):
            return
        for known in [known for known in self._parts if tree.contains(node, known)]:
            del self._parts[known]
        while (other := self._parts.pop(tree.sibling(node), None)) is not None:
            part += other
            node = tree.parent(node)
        self._parts[node] = part

    def _complete(self, covered: int) -> Result:
        """The sum in the tree's order; where leaves were dropped, what is left is added in the order of leaves."""
        first, *others = [self._parts[node] for node in sorted(self._parts, key=lambda node: node[1] << node[0])]
        for part in others:
            first += part
        first *= np.float32(1.0 / covered)
        result = Result(self.step, first, covered)
        self._results[self.step] = result
        self._results.pop(self.step - KEPT_RESULTS, None)
        self._parts.clear()
        self.arrived = {}
        self.step += 1
        return result
