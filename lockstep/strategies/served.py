"""`server` and `driver`: other processes own the slices. They add in the tree's order, so the bits are `allreduce`'s.

A worker asks for the result of a step when it begins, sends the sums that it holds, and waits. Where late leaves are
computed by others too, or dropped, it sends every leaf at once, and finds the step done while it was still at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from lockstep.config import Job, Recipe
from lockstep.data.source import Source
from lockstep.exchange import tree
from lockstep.exchange.group import Lost
from lockstep.exchange.link import Header, Kind, Traffic
from lockstep.exchange.serverlink import ServerLink, connect_all
from lockstep.exchange.tree import Node
from lockstep.generation import Generation, Member
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.step import Leaf, Step
from lockstep.strategies.synchronous import Synchronous
from lockstep.wire import BadFrame

LOOK_SECONDS = 0.05
"""How often a worker whose data a server does not take looks whether there is a new generation."""


class ResultLink(ServerLink):
    """A connection to one server, and the results of its slice that come through it."""

    def __init__(self, server: Member, servers: Servers, start: int, stop: int, incoming: Tensor) -> None:
        self.start, self.stop = start, stop
        self.received = -1
        """The last step whose result is complete."""
        self.num_leaves = 0
        """How many leaves that result is made of."""
        self.answered = -1
        """The last step about whose result the server has said something."""
        self._servers = servers
        self._incoming = incoming[start:stop].view(torch.uint8).numpy().data
        super().__init__(server, servers.generation, servers.membership, servers.traffic, len(incoming))

    def read(self, header: Header) -> bool:
        """Results go to the incoming vector, and nowhere else."""
        if header.kind != Kind.RESULT:
            return True
        if header.num_bytes != self._incoming.nbytes:
            raise BadFrame(f"a result of {header.num_bytes} bytes instead of {self._incoming.nbytes}")
        return self.connection.receive_into(self._incoming, count=True)

    def note(self, header: Header) -> None:
        if header.kind in (Kind.RESULT, Kind.PENDING, Kind.GONE):
            self.answered = header.step
        if header.kind == Kind.RESULT:
            self.received, self.num_leaves = header.step, header.count
        elif header.kind == Kind.COMPUTE and header.step == self._servers.step:
            self._servers.asked = header.index
        elif header.kind == Kind.GONE and header.step == self._servers.step:
            self._servers.is_gone = True


class Servers:
    """All servers of a generation, as one worker sees them."""

    def __init__(self, generation: Generation, membership: Membership, traffic: Traffic, incoming: Tensor) -> None:
        """`incoming` is where results are put, in the memory of the host."""
        self.generation = generation
        self.membership = membership
        self.traffic = traffic
        self.step = -1
        """The step whose result has been asked for."""
        self.asked: int | None = None
        """A late leaf that this worker has been asked to compute as well."""
        self.is_gone = False
        """Whether a result that was asked for is not kept any more."""
        self._pushed: set[Node] = set()
        slices = tree.slices(len(incoming), len(generation.servers))
        self.links = connect_all(generation, lambda slot, server: ResultLink(server, self, *slices[slot], incoming))

    def begin(self, step: Step) -> None:
        """Ask for the result of a step, once."""
        if self.step == step.index:
            return
        self.step, self.asked = step.index, None
        self._pushed.clear()
        for one in self.links:
            one.connection.send(Header(Kind.PULL, step.index))

    def push(self, step: Step, abandoned: Callable[[], bool]) -> None:
        """Send what is held and has not been sent; afterwards its memory may be used again."""
        fresh = {node: vector.flat.cpu() for node, vector in step.held.items() if node not in self._pushed}
        for one in self.links:
            for (level, index), flat in fresh.items():
                part = flat[one.start : one.stop].view(torch.uint8).numpy().data
                one.connection.send(Header(Kind.PUSH, step.index, level, index, num_bytes=part.nbytes), part)
        for done in [one.connection.flush() for one in self.links if fresh]:
            while not done.wait(LOOK_SECONDS):
                if abandoned():
                    raise Lost("a new generation")
        self._pushed.update(fresh)

    def say_idle(self, step: Step) -> None:
        self.links[0].connection.send(Header(Kind.IDLE, step.index))

    def has_result(self, step: Step) -> bool:
        return all(one.received == step.index for one in self.links)

    def is_answered(self, step: Step) -> bool:
        """Whether it is known if the result is there already."""
        return all(one.answered == step.index for one in self.links)

    def has_news(self, step: Step) -> bool:
        """Whether there is a result, or something else to do than to wait for it."""
        failed = any(one.error is not None for one in self.links)
        return self.has_result(step) or self.asked is not None or self.is_gone or failed

    def check(self) -> None:
        """PeerFailed if a connection is lost."""
        for one in self.links:
            one.check()

    def close(self) -> None:
        for one in self.links:
            one.close()


@dataclass
class EagerStep(Step):
    """A step of which every leaf is sent at once, so that there is an exchange before and after each."""

    may_compute: bool = False
    """Whether an exchange has found, since the last leaf, that there is more to compute."""
    taken_over: tuple[int, set[int]] = (0, set())
    """Late leaves of others that are computed here as well, and the generation in which that was asked for."""

    def missing(self) -> Iterator[Leaf]:
        if self.may_compute:
            self.may_compute = False
            yield from islice(super().missing(), 1)

    def todo(self, generation: Generation) -> list[int]:
        number, others = self.taken_over
        late = sorted(others - self.computed) if number == generation.number else []
        return [*super().todo(generation), *late]

    def take_over(self, leaf: int, generation: Generation) -> None:
        """Compute a late leaf of another worker too."""
        number, others = self.taken_over
        self.taken_over = generation.number, {leaf, *(others if number == generation.number else ())}


class Served(Synchronous):
    def __init__(self, recipe: Recipe, job: Job, source: Source, replica: Replica, membership: Membership) -> None:
        super().__init__(recipe, job, source, replica, membership)
        self._servers: Servers | None = None
        self._incoming = torch.zeros(replica.layout.length)
        if job.backup or job.wait_for:
            self.kind_of_step = EagerStep

    def _reduce(self, step: Step, generation: Generation) -> bool:
        is_done = self._add_up(step, generation)
        if isinstance(step, EagerStep):
            step.may_compute = not is_done
        return is_done

    def _add_up(self, step: Step, generation: Generation) -> bool:
        servers, membership = self._servers, self._membership
        if servers is None:
            return super()._reduce(step, generation)  # until there is a server again
        servers.begin(step)
        if not isinstance(step, EagerStep):
            if step.todo(generation):
                return False
        else:  # nobody computes a leaf of a step that is done
            membership.wait(
                lambda: servers.is_answered(step) or servers.has_news(step) or membership.has_left(generation)
            )
        if servers.has_result(step):
            return True
        servers.push(step, self._abandons(generation))
        if step.todo(generation) and not servers.has_result(step) and not servers.is_gone:
            return False
        if self._job.backup:
            servers.say_idle(step)
        membership.wait(lambda: servers.has_news(step) or membership.has_left(generation))
        if servers.has_result(step):
            return True
        servers.check()
        if membership.has_left(generation):
            raise Lost("a new generation")
        if servers.is_gone:
            membership.send({"type": "outrun", "number": generation.number})
            raise Lost("the others are too far ahead")
        with membership.changed:
            leaf, servers.asked = servers.asked, None
            assert leaf is not None
            assert isinstance(step, EagerStep)
            step.take_over(leaf, generation)
        return False

    def _take(self, step: Step) -> None:
        if self._servers is not None:
            step.reduced.flat.copy_(self._incoming)
            self._replica.traffic.dropped_leaves += self._recipe.leaves - self._servers.links[0].num_leaves

    def _meet_servers(self, generation: Generation) -> None:
        if generation.servers:
            self._servers = Servers(generation, self._membership, self._replica.traffic, self._incoming)

    def _leave(self) -> None:
        if self._servers is not None:
            self._servers.close()
            self._servers = None
        super()._leave()
