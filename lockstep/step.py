"""A step: its leaves, what this worker holds of them, and what is missing. The loop is made of these objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import torch

from lockstep import philox
from lockstep.errors import UserError
from lockstep.exchange import tree
from lockstep.exchange.flat import Pool, Vector
from lockstep.exchange.tree import Node
from lockstep.generation import Generation
from lockstep.membership import Membership
from lockstep.rounds import EVERY_STEP, Rounds


@dataclass(frozen=True)
class Leaf:
    """One part of a step's batch, always computed whole, by one worker."""

    step: int
    index: int
    seed: int
    """Of every random generator that the leaf may draw from."""


@dataclass
class Step:
    """Step number `index` (from 0) as one worker sees it, or the round of steps that begins with it."""

    index: int
    seed: int
    membership: Membership
    pool: Pool
    reduced: Vector
    """Where an exchange leaves its result. What is held stays untouched."""
    held: dict[Node, Vector] = field(default_factory=dict)
    """Aligned subtrees with their sums."""
    computed: set[int] = field(default_factory=set)
    """The leaves in `held`."""
    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    """The loss of every leaf that was computed here, for naming the one that is not a number."""
    checks: bool = False
    """Whether integer buffers are checked in this step: the first one of a process."""
    is_counted: bool = True
    """Whether workers count it for rows of metrics; where servers do, they do not."""
    sample: list[torch.Tensor] | None = None
    """How one leaf changed the integer buffers, to be compared with the mean over all leaves."""
    done: bool = False
    """Whether the reduced vector is complete: then the step may be applied, and must be."""
    rounds: Rounds = EVERY_STEP
    """How many steps are one exchange."""

    def __post_init__(self) -> None:
        membership = self.membership
        with membership.changed:
            if not membership.must_copy and not membership.goes_back:  # else a promise speaks of another state
                membership.position = self

    @property
    def steps(self) -> range:
        """The steps that this exchange is about: one, or a round."""
        return range(self.index, self.rounds.end(self.index))

    @property
    def name(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        return f"step {first}" if first == last else f"steps {first} to {last}"

    @property
    def reached(self) -> int:
        """The number of steps of which this worker has the result."""
        return self.steps.stop if self.done else self.index

    def is_due(self, every: int) -> bool:
        """Whether something that is planned every so many steps is due now, before this one."""
        return self.rounds.is_due(every, self.index)

    def missing(self) -> Iterator[Leaf]:
        """My leaves that are not held yet. A new generation is noticed between two of them."""
        while self.membership.is_settled:
            todo = self.todo(self.membership.current)
            if not todo:
                return
            yield self.leaf(todo[0])

    def leaf(self, index: int) -> Leaf:
        return Leaf(self.index, index, philox.leaf_seed(self.seed, self.index, index))

    def todo(self, generation: Generation) -> list[int]:
        """What I have to compute of this step in a generation, and do not hold yet."""
        mine = generation.leaves(generation.rank(self.membership.id), self.index)
        return [index for index in mine if index not in self.computed]

    def hold(self, leaf: Leaf, contribution: Vector) -> None:
        """Keep a contribution; two siblings become their parent, so that few vectors are ever held.

        While a generation is being formed nothing is added: what a promise said is held must stay what is held. A
        leaf that has meanwhile been given to another worker is dropped.
        """
        if len(contribution.flat) != len(self.reduced.flat):
            raise UserError("this is no contribution of the strategy: a loop of your own calls strategy.contribution")
        membership = self.membership
        with membership.changed:
            membership.changed.wait_for(lambda: membership.is_settled)
            if leaf.index not in self.todo(membership.current):
                self.pool.give(contribution)
                return
            self._add(leaf, contribution)

    def _add(self, leaf: Leaf, contribution: Vector) -> None:
        self.losses[leaf.index] = contribution.counts[0].clone()
        if self.checks and self.sample is None:
            self.sample = [view.clone() for view in contribution.integers]
        node: Node = (0, leaf.index)
        while (other := self.held.pop(tree.sibling(node), None)) is not None:
            contribution.flat.add_(other.flat)
            self.pool.give(other)
            node = tree.parent(node)
        self.held[node] = contribution
        self.computed.add(leaf.index)

    def restart(self, index: int) -> None:
        """Become another step, of which nothing is held: that of a state that was copied or gone back to."""
        with self.membership.changed:
            self.release()
            self.index, self.done = index, False
            self.computed.clear()
            self.losses.clear()
            self.membership.position, self.membership.must_copy = self, False

    def alone(self, index: int) -> Step:
        """A step that this worker does by itself, without being a member of anything."""
        membership = Membership.alone(self.membership.current.num_leaves)
        return Step(index, self.seed, membership, self.pool, self.pool.take(), rounds=self.rounds)

    def renew(self) -> None:
        """Take other memory for the result, with the same content. An exchange that was abandoned may write to the old
        one as long as a peer lives, so that is never given back."""
        fresh = self.pool.take()
        fresh.flat.copy_(self.reduced.flat)
        self.reduced = fresh

    def release(self) -> None:
        """What was held is free again."""
        for vector in self.held.values():
            self.pool.give(vector)
        self.held.clear()

    def next(self) -> Self:
        """The step after this one, or after its round."""
        self.release()
        return type(self)(self.steps.stop, self.seed, self.membership, self.pool, self.reduced, rounds=self.rounds)
