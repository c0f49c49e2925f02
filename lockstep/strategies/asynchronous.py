"""`async`: servers hold weights and optimizer, and apply every leaf's gradient as it comes. Not reproducible.

A worker asks the first server what to do. For a task it pulls the weights, computes the leaf's gradient, and pushes it
to all servers. At a barrier it pulls everything, so that all workers have the same weights there: for an evaluation, a
checkpoint, someone who joins, or the end. To the loop, what is between two barriers is one step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from safetensors.torch import load
from torch import Tensor

from lockstep import optim
from lockstep.config import Job, Recipe
from lockstep.data.prefetch import Key
from lockstep.data.source import Source
from lockstep.errors import no_finite_loss
from lockstep.exchange.calls import Calls
from lockstep.exchange.flat import Vector
from lockstep.exchange.group import Lost
from lockstep.exchange.link import Header, Kind
from lockstep.exchange.shares import shares
from lockstep.exchange.tasks import NOWHERE
from lockstep.generation import Generation
from lockstep.membership import Membership
from lockstep.philox import leaf_seed
from lockstep.replica import Replica
from lockstep.shard import UNKNOWN
from lockstep.state import State
from lockstep.step import Leaf, Step
from lockstep.strategies.synchronous import Synchronous


@dataclass
class Stretch(Step):
    """From one barrier to the next, as one worker sees it: a leaf at a time. `index` is that of the newest leaf, so
    that others see that there is progress."""

    is_counted: bool = False
    task: Leaf | None = None
    """What is to be computed."""
    ready: tuple[Leaf, Vector] | None = None
    """What has been computed, until all servers have it."""

    def missing(self) -> Iterator[Leaf]:
        if self.task is not None:
            yield self.task

    def hold(self, leaf: Leaf, contribution: Vector) -> None:
        self.task, self.ready = None, (leaf, contribution)

    def assign(self, leaf: Leaf) -> None:
        with self.membership.changed:
            self.index = max(self.index, leaf.step)
        self.task = leaf

    def finish(self, barrier: int, generation: Generation) -> bool:
        """The stretch ends at a barrier, unless there is a new generation."""
        with self.membership.changed:
            if self.membership.has_left(generation):
                return False
            self.index, self.done = barrier - 1, True
            return True


class Asynchronous(Synchronous):
    kind_of_step = Stretch

    def __init__(self, recipe: Recipe, job: Job, source: Source, replica: Replica, membership: Membership) -> None:
        super().__init__(recipe, job, source, replica, membership)
        layout = replica.layout
        self._shares = shares(layout, job.servers)
        self._calls: Calls | None = None
        self._serial = 0
        """The last barrier that this worker has behind it."""
        self._floor = 0
        """The steps before this one are done, as far as is known here."""
        self._incoming = torch.zeros(layout.integers_start)
        self._statistics = replica.statistics.clone()
        """The buffers that the leaf started from."""
        self._versions: dict[int, int] = {}
        """By server: how many updates the weights have that the leaf started from."""
        self._last: Vector | None = None

    def begin(self, step: Step) -> bool:
        self._floor = step.index
        return super().begin(step)

    def contribution(self, leaf: Leaf) -> Vector:
        """A leaf's gradient, clipped, and what it changed of the floating-point buffers."""
        vector = super().contribution(leaf)
        if clip_norm := self._recipe.optimizer.clip_norm:
            vector.flat_gradients.mul_(optim.clip_factor(vector.flat_gradients, clip_norm))
        vector.statistics.sub_(self._statistics)
        return vector

    def exchange(self, step: Step) -> Literal["reduced", "missing", "copied"]:
        """Deliver what is computed, and get the next task, or reach a barrier: then `step.done`."""
        assert isinstance(step, Stretch)
        with self._replica.spans("exchange"):
            generation = self._membership.settle()
            try:
                calls = self._meet(generation)
                if step.ready is not None:
                    self._push(calls, *step.ready)
                    step.ready = None
                self._proceed(calls, step, generation)
            except Lost as lost:
                self._report(lost, generation)
        return "reduced" if step.done else "missing"

    def _proceed(self, calls: Calls, step: Stretch, generation: Generation) -> None:
        membership = self._membership
        wants_barrier = membership.is_first and membership.checkpoint_wanted is not None
        answer = self._ask(calls, self._serial, wants_barrier)
        if answer.kind == Kind.TASK:
            step.assign(self._prepare(calls, answer))
            return
        self._replica.load(self._fetch(calls, with_optimizer=False))
        if step.finish(answer.step, generation):
            self._serial = answer.index + NOWHERE
            if self._last is not None:
                step.reduced.flat.copy_(self._last.flat)  # for whoever shows gradients

    def _prepare(self, calls: Calls, task: Header) -> Leaf:
        """Get the weights for a leaf, while it is read."""
        self._prefetcher.start((task.step, task.index))
        self._pull(calls)
        return Leaf(task.step, task.index, leaf_seed(self._recipe.seed, task.step, task.index))

    def _ask(self, calls: Calls, serial: int, wants_barrier: bool) -> Header:
        header, _ = calls.ask(0, Header(Kind.ASK, self._floor, level=int(wants_barrier), index=serial - NOWHERE))
        self._floor = max(self._floor, header.count if header.kind == Kind.TASK else header.step)
        return header

    def _pull(self, calls: Calls) -> None:
        replica, start = self._replica, self._replica.layout.statistics_start
        answers = calls.ask_all(lambda slot: (Header(Kind.PULL, self._floor), None))
        for share, (_, payload) in zip(self._shares, answers, strict=True):
            values, at = payload.view(torch.float32), 0
            for first, last in (share.gradients, share.statistics):
                self._incoming[first:last] = values[at : at + last - first]
                at += last - first
        replica.weights.copy_(self._incoming[:start])
        self._statistics.copy_(self._incoming[start:])
        replica.put_statistics(self._statistics)
        self._versions = {id_: header.count for id_, (header, _) in zip(calls.ids(), answers, strict=True)}

    def _push(self, calls: Calls, leaf: Leaf, vector: Vector) -> None:
        """To all servers; when each has applied it, the first one is told."""
        if not math.isfinite(vector.counts[0].item()):
            raise no_finite_loss(f"step {leaf.step}", leaf.index)
        flat, rest, ids = vector.flat.cpu(), self._replica.layout.integers_start, calls.ids()

        def message(slot: int) -> tuple[Header, Tensor]:
            share, version = self._shares[slot], self._versions.get(ids[slot], UNKNOWN)
            payload = torch.cat([flat[slice(*share.gradients)], flat[slice(*share.statistics)], flat[rest:]])
            num_bytes = payload.numel() * payload.element_size()
            return Header(Kind.PUSH, leaf.step, index=leaf.index, count=version, num_bytes=num_bytes), payload

        calls.ask_all(message)
        calls.tell(0, Header(Kind.DONE, leaf.step, index=leaf.index))
        if self._last is not None:
            self._replica.pool.give(self._last)
        self._last = vector

    def _fetch(self, calls: Calls, with_optimizer: bool) -> State:
        named: dict[str, Tensor] = {}
        for _, payload in calls.ask_all(lambda slot: (Header(Kind.FETCH, level=int(with_optimizer)), None)):
            named |= load(payload.numpy().tobytes())
        return State.from_named(named)

    def snapshot(self) -> State:
        """The servers are at a barrier, and stay there until this worker asks them for something to do."""
        while True:
            generation = self._membership.settle()
            try:
                self._replica.load(self._fetch(self._meet(generation), with_optimizer=True))
                return self._replica.copy_state()
            except Lost as lost:
                self._report(lost, generation)

    def enter(self, step: Step) -> None:
        """Nobody needs anything from a worker."""

    def _join(self, step: Step, generation: Generation) -> None:
        """Whoever joins asks for a barrier, helps the others to get there, and begins."""
        calls = self._meet(generation)
        while (answer := self._ask(calls, NOWHERE, wants_barrier=True)).kind == Kind.TASK:
            leaf = self._prepare(calls, answer)
            self._push(calls, leaf, self.contribution(leaf))
        self._replica.load(self._fetch(calls, with_optimizer=False))
        with self._membership.changed:
            if self._membership.has_left(generation):
                raise Lost("a new generation")
            step.restart(answer.step)
        self._serial = answer.index + NOWHERE

    def apply(self, step: Step) -> None:
        """The servers have done it."""

    def upcoming(self, leaf: Leaf) -> Iterator[Key]:
        """Nobody knows; a leaf is read while its weights are on their way."""
        return iter(())

    def _later(self, leaf: Leaf) -> Iterator[Key]:
        return iter(())

    def _meet(self, generation: Generation) -> Calls:
        """Connections to the servers, once all of them are there."""
        if self._calls is None or self._entered != generation.number:
            self._leave()
            if len(generation.servers) < self._job.servers:
                raise Lost("a server is not there yet")
            self._calls = Calls(generation, self._membership, self._replica.traffic, self._replica.layout.length)
            self._entered = generation.number
        return self._calls

    def _leave(self) -> None:
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        super()._leave()

    def close(self) -> None:
        super().close()
        self._leave()
