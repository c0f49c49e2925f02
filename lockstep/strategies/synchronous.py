"""Synchronous training: gradients are added in the tree's order by the owners of slices, then applied by everyone.

`allreduce`, `server` and `driver` are one algorithm with different answers to the question who owns the slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lockstep.config import Recipe
from lockstep.data.order import samples_of_leaf
from lockstep.data.prefetch import Key, Prefetcher
from lockstep.data.source import Batch, Source
from lockstep.exchange import tree
from lockstep.exchange.flat import Vector
from lockstep.exchange.group import Group, Lost
from lockstep.exchange.tree import Node
from lockstep.generation import Generation
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.step import Leaf, Step

Owners = Callable[[Generation], list[int]]
"""The ranks that own a slice each."""


def allreduce(generation: Generation) -> list[int]:
    """Every worker owns a slice."""
    return list(range(len(generation)))


class Synchronous:
    def __init__(self, recipe: Recipe, source: Source, replica: Replica, membership: Membership, owners: Owners):
        self._recipe = recipe
        self._source = source
        self._replica = replica
        self._membership = membership
        self._owners = owners
        self._prefetcher = Prefetcher(self._read, recipe.data.prefetch)
        self._group: Group | None = None

    def first_step(self, index: int) -> Step:
        replica = self._replica
        reduced = Vector(replica.layout, replica.device.torch)
        return Step(index, self._recipe.seed, self._membership, replica.pool, reduced, checks=True)

    def contribution(self, leaf: Leaf) -> Vector:
        """A leaf's gradient."""
        return self._replica.gradient(self.batch(leaf), leaf.seed)

    def batch(self, leaf: Leaf) -> Batch:
        """A leaf's samples, usually read while the leaf before it was computed."""
        with self._replica.spans("data"):
            return self._prefetcher.take(leaf.step, leaf.index, self._upcoming(leaf))

    def exchange(self, step: Step) -> None:
        """Add up what everyone holds; `step.done` tells whether the reduced vector is complete."""
        with self._replica.spans("exchange"):
            generation = self._membership.current
            if len(generation) == 1:
                self._reduce_alone(step)
            else:
                self._exchange(step, generation)

    def apply(self, step: Step) -> None:
        with self._replica.spans("optimizer"):
            self._replica.apply(step.reduced, step.index)

    def close(self) -> None:
        self._prefetcher.close()
        if self._group is not None:
            self._group.drop()

    def _read(self, step: int, leaf: int) -> Batch:
        r = self._recipe
        return self._source.fetch(samples_of_leaf(r.seed, len(self._source), r.global_batch, r.leaves, step, leaf))

    def _upcoming(self, leaf: Leaf) -> Iterator[Key]:
        """What I shall compute after this leaf."""
        mine = self._membership.leaves()
        yield from ((leaf.step, index) for index in mine if index > leaf.index)
        yield from ((leaf.step + 1, index) for index in mine)

    def _reduce_alone(self, step: Step) -> None:
        whole = step.held[tree.root(self._recipe.leaves)]
        torch.mul(whole.flat, 1.0 / self._recipe.leaves, out=step.reduced.flat)
        step.done = True

    def _exchange(self, step: Step, generation: Generation) -> None:
        abandoned = self._abandons(generation)
        try:
            group = self._enter(generation, abandoned)
            transfer(group, step, self._owners(generation), self._recipe.leaves, abandoned)
        except Lost as lost:
            self._leave()
            self._membership.send({"type": "lost", "generation": generation.number, "error": str(lost)})
            self._membership.wait(abandoned)
            return
        step.done = True

    def _abandons(self, generation: Generation) -> Callable[[], bool]:
        return lambda: self._membership.current.number != generation.number

    def _enter(self, generation: Generation, abandoned: Callable[[], bool]) -> Group:
        """The group of this generation; the one of an older generation is dropped."""
        if self._group is not None and self._group.generation.number == generation.number:
            return self._group
        self._leave()
        membership = self._membership
        self._group = Group(generation, generation.rank(membership.id), self._replica.device, membership.changed)
        self._group.connect(abandoned)
        return self._group

    def _leave(self) -> None:
        if self._group is not None:
            self._group.drop()
            self._group = None


def transfer(group: Group, step: Step, owners: list[int], num_leaves: int, abandoned: Callable[[], bool]) -> None:
    """Reduce-scatter and all-gather of the flat vector, from point-to-point sends of aligned subtrees."""
    generation, me = group.generation, group.rank
    flat = step.reduced.flat
    slice_of = dict(zip(owners, tree.slices(flat.numel(), len(owners)), strict=True))
    others = [rank for rank in range(len(generation)) if rank != me]
    mine, parts = _cut(flat, slice_of.get(me, (0, 0))), {}

    sends, receives = [], []
    for rank in others:
        for node in tree.maximal_subtrees(generation.leaves(rank)) if mine.numel() else []:
            parts[node] = torch.empty_like(mine)
            receives.append((parts[node], rank, tag_of(node)))
        if rank in slice_of and (result := _cut(flat, slice_of[rank])).numel():
            receives.append((result, rank, RESULT_TAG))
            sends += [(_cut(v.flat, slice_of[rank]), rank, tag_of(node)) for node, v in sorted(step.held.items())]
    # NCCL runs what is posted together as one unit, so results are asked for only after the sums are here.
    results = [receive for receive in receives if receive[2] == RESULT_TAG]
    group.post(sends, [receive for receive in receives if receive[2] != RESULT_TAG])
    group.wait(abandoned)

    if mine.numel():
        held = {node: _cut(vector.flat, slice_of[me]) for node, vector in step.held.items()}
        add_parts(held, parts, num_leaves, out=mine)
    group.post([(mine, rank, RESULT_TAG) for rank in others if mine.numel()], results)
    group.wait(abandoned)


RESULT_TAG = 0


def tag_of(node: Node) -> int:
    return 1 + (node[0] << 16) + node[1]


def _cut(flat: Tensor, bounds: tuple[int, int]) -> Tensor:
    return flat[bounds[0] : bounds[1]]


def add_parts(held: dict[Node, Tensor], received: dict[Node, Tensor], num_leaves: int, out: Tensor) -> None:
    """The mean over all leaves of one slice, in the tree's order. What is held is read and never written."""
    scratch = {id(tensor) for tensor in received.values()}

    def add(left: Tensor, right: Tensor) -> Tensor:
        # Addition commutes to the bit, so the sum may go into whichever side is ours to write.
        if id(left) in scratch:
            return left.add_(right)
        if id(right) in scratch:
            return right.add_(left)
        total = left + right
        scratch.add(id(total))
        return total

    torch.mul(tree.reduce_parts({**held, **received}, num_leaves, add), 1.0 / num_leaves, out=out)
