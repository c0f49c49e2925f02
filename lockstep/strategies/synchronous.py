"""Synchronous training: gradients are added in the tree's order by the owners of slices, then applied by everyone.

In `allreduce` the workers are the owners. In `server` and `driver` (`served.py`) other processes are, and the rest is
the same: who is a member, who joins, who is behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from lockstep import philox, strategies
from lockstep.config import Job, Recipe
from lockstep.data import mix
from lockstep.data.order import Samples, samples_of_leaf
from lockstep.data.prefetch import Key, Prefetcher
from lockstep.data.source import Batch, Source, draws_here, layout_of, read_ahead
from lockstep.exchange import tree
from lockstep.exchange.flat import Vector
from lockstep.exchange.group import Group, Lost, PeerFailed
from lockstep.exchange.tree import Node
from lockstep.generation import Generation
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.state import State
from lockstep.step import Leaf, Step
from lockstep.strategies import catchup


class Synchronous:
    adds_gradients = True
    """Whether a reduced vector holds gradients."""

    kind_of_step: type[Step] = Step

    def __init__(self, recipe: Recipe, job: Job, source: Source, replica: Replica, membership: Membership) -> None:
        self._recipe = recipe
        self._job = job
        self._source = source
        self._replica = replica
        self._membership = membership
        self.pool = replica.pool
        """Contributions are taken from here, and given back."""
        self._rounds = strategies.rounds(job, replica.num_steps)
        self._prefetcher = Prefetcher(self._read, 0 if draws_here(source) else recipe.data.prefetch)
        self._group: Group | None = None
        self._entered = 0
        """The generation whose group is connected and whose members have been helped."""
        self.observe: Callable[[Leaf, Vector], None] | None = None
        """Called with every contribution."""
        self.on_copy: Callable[[], None] | None = None
        """Called when the state was copied from others in the middle of training."""

    def first_step(self, index: int) -> Step:
        reduced, seed = self.pool.take(), self._recipe.seed
        return self.kind_of_step(index, seed, self._membership, self.pool, reduced, checks=True, rounds=self._rounds)

    def contribution(self, leaf: Leaf) -> Vector:
        """A leaf's gradient."""
        vector = self._replica.gradient(self.batch(leaf), leaf.seed, leaf.step)
        if self.observe is not None:
            self.observe(leaf, vector)
        return vector

    def recompute(self, step: int, leaf: int) -> Vector:
        """A leaf's gradient once more, or that of another worker's leaf, apart from what is planned."""
        seed = philox.leaf_seed(self._recipe.seed, step, leaf)
        return self._replica.gradient(self._read(step, leaf), seed, step)

    def batch(self, leaf: Leaf) -> Batch:
        """A leaf's samples, usually read while the leaf before it was computed."""
        with self._replica.spans("data"):
            coming = itertools.chain([(leaf.step, leaf.index)], self.upcoming(leaf), self._later(leaf))
            read_ahead(self._source, (self.samples(*key) for key in coming))
            return self._prefetcher.take(leaf.step, leaf.index, self.upcoming(leaf))

    def read(self, leaf: Leaf) -> Batch:
        """A leaf's samples, apart from what is planned."""
        return self._read(leaf.step, leaf.index)

    def exchange(self, step: Step) -> Literal["reduced", "missing", "copied"]:
        """Add up what everyone holds: `step.done` tells whether the reduced vector is complete. If it is not, more may
        be missing, or there is a new generation; who is too far behind in it gets the state of the others, and `step`
        becomes theirs."""
        with self._replica.spans("exchange"):
            generation = self._membership.settle()
            try:
                if self._enter(generation, step) == "copied":
                    return "copied"
                if not step.done and not self._reduce(step, generation):
                    return "missing"
            except Lost as lost:
                self._report(lost, generation)
                step.renew()
                return "missing"
            if not step.done and self._membership.commit(step, generation):
                self._take(step)
            return "reduced" if step.done else "missing"

    def _reduce(self, step: Step, generation: Generation) -> bool:
        """Form the mean over all leaves; False if there are more to compute first."""
        if step.todo(generation):
            return False
        if self._group is None:
            self.reduce_alone(step)
        else:
            transfer(self._group, step, self._recipe.leaves, self._abandons(generation))
        return True

    def _take(self, step: Step) -> None:
        """Put the result of a step that is done into `step.reduced`, where it is not there already."""

    def reduce_alone(self, step: Step) -> None:
        """The result of a step of which every leaf is held here."""
        whole = step.held[tree.root(self._recipe.leaves)]
        torch.mul(whole.flat, 1.0 / self._recipe.leaves, out=step.reduced.flat)

    def enter(self, step: Step) -> None:
        """Take part in a new generation while not exchanging: others may need the state or the last result."""
        with self._replica.spans("exchange"):
            generation = self._membership.settle()
            try:
                self._enter(generation, step)
            except Lost as lost:
                self._report(lost, generation)
                step.renew()

    def begin(self, step: Step) -> bool:
        """Wait for a generation. True if the job runs already: then the state is copied from its members, and `step`
        becomes theirs."""
        while True:
            generation = self._membership.settle()
            if self._membership.id not in generation.joiners:
                return False
            with self._replica.spans("exchange"):
                try:
                    self._join(step, generation)
                    return True
                except Lost as lost:
                    self._report(lost, generation)

    def _join(self, step: Step, generation: Generation) -> None:
        """Copy the state of a running job; `step` becomes that of its members."""
        self._leave()
        self._group = self._connect(generation)
        self._meet_servers(generation)  # before anything is copied: who fails here is still out of date, and knows it
        reduced = catchup.receive_state(self._group, self._replica, self._abandons(generation))
        with self._membership.changed:
            if self._membership.has_left(generation):
                raise Lost("a new generation")
            step.restart(generation.step)
            step.reduced.flat.copy_(reduced)
        self._entered = generation.number

    def apply(self, step: Step) -> None:
        with self._replica.spans("optimizer"):
            self._replica.apply(step.reduced, step.index)

    def snapshot(self) -> State:
        """A copy of the state, for a checkpoint."""
        return self._replica.copy_state()

    def close(self) -> None:
        self._prefetcher.close()
        if self._group is not None:
            self._group.drop()

    def samples(self, step: int, leaf: int) -> Samples:
        r = self._recipe
        return samples_of_leaf(r.seed, layout_of(self._source), r.global_batch, r.leaves, step, leaf)

    def _read(self, step: int, leaf: int) -> Batch:
        r, batch = self._recipe, self._source.fetch(self.samples(step, leaf))
        if batch.images.ndim != 4:
            return batch  # no images, and nothing to be mixed
        return replace(batch, mix=mix.draw(r.data, r.seed, step, leaf, *batch.images.shape[-2:]))

    def upcoming(self, leaf: Leaf) -> Iterator[Key]:
        """What I shall compute after this leaf, in this step and in the next if there is one."""
        generation = self._membership.current
        rank = generation.rank(self._membership.id)
        yield from ((leaf.step, index) for index in generation.leaves(rank, leaf.step) if index > leaf.index)
        if leaf.step + 1 < self._replica.num_steps:
            yield from ((leaf.step + 1, index) for index in generation.leaves(rank, leaf.step + 1))

    def _later(self, leaf: Leaf) -> Iterator[Key]:
        """What I shall compute after that if nothing changes: only far sources begin to read it."""
        generation = self._membership.current
        rank = generation.rank(self._membership.id)
        steps = range(leaf.step + 2, self._replica.num_steps)
        return ((step, index) for step in steps for index in generation.leaves(rank, step))

    def _abandons(self, generation: Generation) -> Callable[[], bool]:
        return lambda: self._membership.has_left(generation)

    def _enter(self, generation: Generation, step: Step) -> Literal["met", "copied"]:
        """Meet the members of this generation, if that is not done; those who lack something get it."""
        if self._entered == generation.number:
            return "met"
        if self._membership.must_copy:
            self._join(step, generation)
            if self.on_copy is not None:
                self.on_copy()
            return "copied"
        self._leave()
        if len(generation) > 1:
            self._group = self._connect(generation)
            abandoned = self._abandons(generation)
            if step.index < generation.step:
                catchup.receive_result(self._group, step, abandoned)
                if not self._membership.commit(step, generation):
                    raise Lost("a new generation")
            else:
                catchup.help_others(self._group, self._replica, step, abandoned)
        self._meet_servers(generation)
        self._entered = generation.number
        return "met"

    def _meet_servers(self, generation: Generation) -> None:
        """Connect to whoever owns the slices, if other processes do."""

    def _connect(self, generation: Generation) -> Group:
        membership = self._membership
        rank = generation.rank(membership.id)
        traffic = self._replica.traffic
        group = Group(generation, rank, self._replica.device, membership.host, membership.changed, traffic)
        try:
            group.connect(self._abandons(generation))
        except Lost:
            group.drop()
            raise
        return group

    def _report(self, lost: Lost, generation: Generation) -> None:
        """Say whom the exchange failed with, and wait for the supervisor to form a new generation.

        The group is kept until then: dropping it would make others fail, with the wrong peer to blame.
        """
        if isinstance(lost, PeerFailed):
            peer = lost.server if lost.rank is None else generation.members[lost.rank].id
            message = {"type": "lost", "number": generation.number, "peer": peer, "error": str(lost)}
            self._membership.send(message)
        self._membership.wait(self._abandons(generation))
        self._leave()

    def _leave(self) -> None:
        self._entered = 0
        if self._group is not None:
            self._group.drop()
            self._group = None


def transfer(group: Group, step: Step, num_leaves: int, abandoned: Callable[[], bool]) -> None:
    """Reduce-scatter and all-gather of the flat vector, from point-to-point sends of aligned subtrees.

    Every member owns a slice: it adds up what all hold of it, and gives everyone the result.
    """
    generation, me = group.generation, group.rank
    flat = step.reduced.flat
    slice_of = dict(enumerate(tree.slices(flat.numel(), len(generation))))
    others = [rank for rank in range(len(generation)) if rank != me]
    mine, parts = _cut(flat, slice_of[me]), {}

    sends, receives = [], []
    for rank in others:
        for node in tree.maximal_subtrees(generation.leaves(rank, step.index)) if mine.numel() else []:
            parts[node] = group.buffer(tag_of(node), mine)
            receives.append((parts[node], rank, tag_of(node)))
        if (result := _cut(flat, slice_of[rank])).numel():
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
