"""Averaging of weights: every leaf trains by itself for a round of steps, then everything is averaged over the leaves.

The replicas are the leaves, not the workers, so the number of workers changes nothing: a worker trains its leaves one
after the other, each from the round's shared state. Members, joiners and the exchange are those of `synchronous.py`;
the vector is longer, because it also holds what the optimizer keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lockstep import optim, philox
from lockstep.config import Job, Recipe
from lockstep.data.prefetch import Key
from lockstep.data.source import Batch, Source
from lockstep.exchange.flat import Layout, Pool, Vector
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.step import Leaf, Step
from lockstep.strategies.synchronous import Synchronous

OUTER_MOMENTUM = 0.9
OUTER_RATE = 0.7
"""Those of DiLoCo (Douillard et al. 2023), for any inner optimizer and any number of local steps."""
OUTER_SLOT = "outer_momentum"
"""Beside what the optimizer keeps for a weight, so that checkpoints, joiners and digests have it as well."""


class Averaging(Synchronous):
    adds_gradients = False

    def __init__(self, recipe: Recipe, job: Job, source: Source, replica: Replica, membership: Membership) -> None:
        super().__init__(recipe, job, source, replica, membership)
        self._layout = layout_of(replica)
        self.pool = Pool(self._layout, replica.device.torch)

    def contribution(self, leaf: Leaf) -> Vector:
        """What a leaf has made of the round's shared state after its local steps."""
        vector = self._train(leaf.step, leaf.index, self.batch)
        if self.observe is not None:
            self.observe(leaf, vector)
        return vector

    def recompute(self, step: int, leaf: int) -> Vector:
        return self._train(step, leaf, self.read)

    def _train(self, first: int, index: int, batch: Callable[[Leaf], Batch]) -> Vector:
        """The local steps of a leaf; afterwards the replica is again as it was."""
        replica, vector = self._replica, self.pool.take()
        vector.counts.zero_()
        for change in vector.integers:
            change.zero_()
        start = replica.mark()
        steps = range(first, self._rounds.end(first))
        for step in steps:
            leaf = Leaf(step, index, philox.leaf_seed(self._recipe.seed, step, index))
            gradient = replica.gradient(batch(leaf), leaf.seed, step)
            with replica.spans("optimizer"):
                replica.update(gradient, step)
            vector.counts.add_(gradient.counts)
            for total, change in zip(vector.integers, gradient.integers, strict=True):
                total.add_(change)
            replica.pool.give(gradient)
        vector.counts.div_(len(steps))
        vector.flat_gradients.copy_(replica.weights)
        vector.statistics.copy_(replica.statistics)
        kept = optim.named_state(replica.optimizer, replica.model)
        for place, view in zip(self._layout.slots, vector.slots, strict=True):
            view.copy_(kept[place.name])
        replica.return_to(start)
        return vector

    def apply(self, step: Step) -> None:
        """The average becomes the state of everyone, or with an outer optimizer what that makes of it."""
        replica, reduced = self._replica, step.reduced
        with replica.spans("optimizer"):
            slots = {place.name: view for place, view in zip(self._layout.slots, reduced.slots, strict=True)}
            if self._job.outer == "nesterov":
                slots |= self._outer_step(reduced)
            else:
                replica.weights.copy_(reduced.flat_gradients)
            optim.load_state(replica.optimizer, replica.model, slots)
            replica.take_buffers(reduced)
            if replica.average is not None:
                replica.average.update(step.steps)

    def _outer_step(self, reduced: Vector) -> dict[str, Tensor]:
        """A step from the round's start, with the way to the average for a gradient. Returns the outer momentum."""
        replica = self._replica
        kept = optim.named_state(replica.optimizer, replica.model)
        momentum = {}
        with torch.no_grad():
            for (name, weight), average in zip(replica.model.named_parameters(), reduced.gradients, strict=True):
                if weight.requires_grad:
                    key = f"{name}/{OUTER_SLOT}"
                    gradient = weight - average
                    momentum[key] = kept.get(key, torch.zeros_like(weight)).mul(OUTER_MOMENTUM).add_(gradient)
                    weight.sub_(gradient.add_(momentum[key], alpha=OUTER_MOMENTUM), alpha=OUTER_RATE)
        return momentum

    def upcoming(self, leaf: Leaf) -> Iterator[Key]:
        """The rest of this leaf's round, my other leaves of the round, then the next round."""
        generation = self._membership.current
        rank = generation.rank(self._membership.id)
        stop = self._rounds.end(leaf.step)
        first = self._rounds.before(stop)
        yield from ((step, leaf.index) for step in range(leaf.step + 1, stop))
        later = [index for index in generation.leaves(rank, first) if index > leaf.index]
        yield from ((step, index) for index in later for step in range(first, stop))
        coming = range(stop, self._rounds.end(stop))
        yield from ((step, index) for index in generation.leaves(rank, stop) for step in coming)


def layout_of(replica: Replica) -> Layout:
    """The replica's layout and what its optimizer keeps, which is known after a step: one is made, and undone."""
    start, nothing = replica.mark(), replica.begin_leaf(0)
    replica.update(nothing, 0)
    slots = list(optim.named_state(replica.optimizer, replica.model).items())
    replica.return_to(start)
    replica.pool.give(nothing)
    return replica.layout.with_slots(slots, replica.recipe.channels_last)
