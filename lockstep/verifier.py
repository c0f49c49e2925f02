"""A worker's part in finding silent corruption (`--verify-every`).

At a verification every member reports digests of its state, of one leaf of its own and of one leaf of another member,
and waits for the verdict. The supervisor decides (`supervisor/verification.py`): what all agree on becomes the
snapshot to which everyone returns when someone turns out to be wrong.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lockstep.exchange.flat import Vector
from lockstep.generation import Generation
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.reporter import Reporter
from lockstep.state import State
from lockstep.step import Leaf, Step
from lockstep.strategies.synchronous import Synchronous


@dataclass
class Verifier:
    every: int
    """Steps between two verifications; 0 for none."""
    last: int
    replica: Replica
    strategy: Synchronous
    membership: Membership
    reporter: Reporter
    _snapshot: tuple[int, State] | None = None
    """The last verified step and its state; None for one who has joined since."""
    _sums: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    """A checksum of every leaf computed here since the snapshot, to be compared in a replay."""
    _digests: dict[tuple[int, int], str] = field(default_factory=dict)

    def begin(self, step: Step) -> None:
        """What everyone starts from needs no verification; what is copied from a running job has had none."""
        if self.every:
            self.strategy.observe = self._note
            self._keep_if_verified(step)

    def is_due(self, step: Step) -> bool:
        planned = self.every > 0 and (step.is_due(self.every) or step.index == self.last)
        return planned and self.membership.verified < step.index

    def verify(self, step: Step) -> bool:
        """Wait until all members agree. False if one was wrong: then `step` is that of the snapshot, or of the state
        copied from those who had one."""
        with self.replica.spans("verify"):
            while self.membership.verified < step.index:
                generation = self.membership.settle()
                if self.membership.goes_back:
                    self._go_back(step)
                    return False
                if self.membership.must_copy:
                    self.strategy.begin(step)
                    self._keep_if_verified(step)
                    return False
                if self.membership.verified >= step.index:
                    break
                self.strategy.enter(step)
                self._say("verify", generation, step, self._report(step, generation))
                self._settle_disputes(step, generation)
            self._keep(step)
            return True

    def _keep_if_verified(self, step: Step) -> None:
        self._snapshot = None
        if step.index == self.membership.verified:
            self._keep(step)

    def _keep(self, step: Step) -> None:
        self._snapshot = step.index, self.replica.copy_state()
        self._sums.clear()
        self._digests.clear()

    def _go_back(self, step: Step) -> None:
        assert self._snapshot is not None, "the supervisor sent back a member that has no snapshot"
        index, state = self._snapshot
        assert index == self.membership.current.verified
        self.replica.load(state)
        self._sums.clear()
        self._digests.clear()
        step.restart(index)
        self.membership.goes_back = False

    def _note(self, leaf: Leaf, contribution: Vector) -> None:
        self._sums[leaf.step, leaf.index] = checksum(contribution)

    def _say(self, kind: str, generation: Generation, step: Step, found: dict[str, Any]) -> None:
        self.membership.send({"type": kind, "number": generation.number, "step": step.index, **found})

    def _report(self, step: Step, generation: Generation) -> dict[str, Any]:
        """My state, a leaf of mine, which is held for the step to come, and one of the next member's."""
        self.reporter.at(step.index, 0)  # computing, and not waiting for anyone
        leaves = {}
        me, size = generation.rank(self.membership.id), len(generation)
        if step.index < self.last and size > 1:
            mine, theirs = (self._checked_leaf(generation, rank % size, step.index) for rank in (me, me + 1))
            if mine is not None:
                leaves[mine] = self._digest_of_mine(step, mine)
            if theirs is not None:
                leaves[theirs] = self._digest_again(step.index, theirs)
        state = self.replica.state_digest(step.index)
        self.reporter.at(step.index, None)
        return {"state": state, "leaves": leaves}

    def _checked_leaf(self, generation: Generation, rank: int, step: int) -> int | None:
        leaves = generation.leaves(rank, step)
        return leaves[step // self.every % len(leaves)] if leaves else None

    def _digest_of_mine(self, step: Step, index: int) -> str:
        key = step.index, index
        if key not in self._digests:
            if index in step.computed:
                return self._digest_again(*key)
            leaf = step.leaf(index)
            contribution = self.strategy.contribution(leaf)
            self._digests[key] = digest(contribution)
            step.hold(leaf, contribution)
        return self._digests[key]

    def _digest_again(self, step: int, index: int) -> str:
        contribution = self.strategy.recompute(step, index)
        found = digest(contribution)
        self.strategy.pool.give(contribution)
        return found

    def _settle_disputes(self, step: Step, generation: Generation) -> None:
        """Answer what the supervisor asks, until there is a verdict or a new generation."""
        membership = self.membership
        while True:
            membership.wait(
                lambda: (
                    membership.verified >= step.index
                    or membership.has_left(generation)
                    or membership.dispute is not None
                )
            )
            with membership.changed:
                dispute, membership.dispute = membership.dispute, None
            if dispute is None or membership.has_left(generation):
                return
            if dispute["replay"]:
                self._say("answer", generation, step, self._replay(step))
            else:
                leaves = {leaf: self._digest_again(step.index, leaf) for leaf in dispute["leaves"]}
                state = self.replica.state_digest(step.index)
                self._say("answer", generation, step, {"state": state, "leaves": leaves})

    def _replay(self, step: Step) -> dict[str, Any]:
        """Do the steps since the snapshot again, alone, and find the first in which a leaf of mine had other bits."""
        if self._snapshot is None:
            return {"state": "", "diverged": None}
        first, verified = self._snapshot
        now = self.replica.copy_state()
        self.replica.load(verified)
        diverged = None
        alone = step.alone(first)
        while alone.index < step.index:
            for leaf in alone.missing():
                self.reporter.at(alone.index, leaf.index)
                contribution = self.strategy.recompute(alone.index, leaf.index)
                known = self._sums.get((alone.index, leaf.index))
                if diverged is None and known is not None and not torch.equal(known, checksum(contribution)):
                    diverged = alone.index
                alone.hold(leaf, contribution)
            self.strategy.reduce_alone(alone)
            self.strategy.apply(alone)
            alone = alone.next()
        self.strategy.pool.give(alone.reduced)
        state = self.replica.state_digest(step.index)
        self.replica.load(now)
        self.reporter.at(step.index, None)
        return {"state": state, "diverged": diverged}


def digest(contribution: Vector) -> str:
    return hashlib.sha256(contribution.flat.cpu().numpy().data).hexdigest()


def checksum(contribution: Vector) -> Tensor:
    """A sum over the bits, which any flipped bit changes; far cheaper than a digest, and not waited for on a GPU."""
    return contribution.flat.view(torch.int32).sum(dtype=torch.int64)
