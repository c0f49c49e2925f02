"""Moments of an exchange that no schedule of real processes hits for sure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lockstep.data.order import Samples, samples_of_leaf
from lockstep.data.source import Batch, Source
from lockstep.device import Device
from lockstep.engines.local import LOOPBACK_INTERFACE
from lockstep.exchange import tree
from lockstep.exchange.group import Group, PeerFailed, listen
from lockstep.generation import Generation, Member
from lockstep.reporter import Reporter
from lockstep.strategies import catchup, synchronous
from tests.alone import set_up, tiny_recipe

TWO = Generation(
    number=2,
    members=(Member(0, "host:0"), Member(1, "host:1")),
    num_leaves=4,
    secret="",
    step=1,
    first_leaves=((0, 1), (2, 3)),
    behind=(0,),
)


class Dropped:
    """A group that was never connected."""

    def drop(self) -> None:
        pass


def test_a_promise_given_while_catching_up_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the step came, but a new generation was promised meanwhile: the step is not done, and nothing is
    exchanged in the old generation any more."""
    _, strategy, step = set_up(tiny_recipe())
    membership = step.membership
    membership.generation, membership.promised = TWO, 2
    announced = replace(TWO, number=3)

    def receive_and_promise(*_: Any) -> None:
        membership.promised = 3

    def settle_later(*_: Any, **__: Any) -> None:
        membership.generation = announced if membership.promised == 3 else TWO

    def transfer(*_: Any) -> None:
        raise AssertionError("an exchange in a generation that has been left")

    monkeypatch.setattr(strategy, "_connect", lambda generation: Dropped())
    monkeypatch.setattr(catchup, "receive_result", receive_and_promise)
    monkeypatch.setattr(membership, "wait", settle_later)
    monkeypatch.setattr(synchronous, "transfer", transfer)
    strategy.exchange(step)
    done = [step.done]
    monkeypatch.setattr(catchup, "receive_result", lambda *_: None)
    strategy.exchange(step)
    done.append(step.done)
    assert done == [False, True]
    strategy.close()


def test_who_is_told_to_copy_does_so_also_if_it_had_just_finished_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A straggler, between the end of a step and the next one, when it hears that the others are far ahead. A failure
    on the way leaves it out of date."""
    _, strategy, step = set_up(tiny_recipe())
    membership = step.membership
    step.done = True
    with membership.changed:
        membership._enter(replace(TWO, step=5, behind=(), joiners=(0,)))
    step = step.next()
    sent: list[Any] = []
    monkeypatch.setattr(membership, "send", sent.append)
    membership._promise(2)
    assert sent == [{"type": "promised", "number": 2, "step": -1, "held": []}]

    def fail(*_: Any) -> None:
        raise PeerFailed("no connection", server=7)

    monkeypatch.setattr(strategy, "_connect", lambda generation: Dropped())
    monkeypatch.setattr(membership, "wait", lambda *_, **__: None)
    monkeypatch.setattr(strategy, "_meet_servers", fail)
    assert strategy.exchange(step) == "missing"
    assert sent[-1] == {"type": "lost", "number": 2, "peer": 7, "error": "no connection"}
    assert membership.must_copy
    assert step.index == 1
    monkeypatch.setattr(strategy, "_meet_servers", lambda generation: None)
    monkeypatch.setattr(catchup, "receive_state", lambda *_: step.reduced.flat.clone())
    copied: list[int] = []
    strategy.on_copy = lambda: copied.append(step.index)
    assert strategy.exchange(step) == "copied"
    assert (step.index, copied) == (5, [5])
    membership._promise(3)
    assert sent[-1] == {"type": "promised", "number": 3, "step": 5, "held": []}
    strategy.close()


def test_after_a_copy_a_row_counts_only_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that is copied knows of no step since the last row, though this worker had done some."""
    replica, strategy, step = set_up(tiny_recipe(log_every=1))
    sent: list[Any] = []
    monkeypatch.setattr(step.membership, "send", sent.append)
    reporter = Reporter(tiny_recipe(log_every=1), replica, step.membership)
    reporter.count(step)
    replica.tally = []
    reporter.restart()
    reporter.report(step.next(), is_first=True, at_end=False)
    assert not sent
    strategy.close()


class Far:
    """A source that is told early what will be fetched."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.plans: list[list[list[int]]] = []

    def __len__(self) -> int:
        return len(self._source)

    def fetch(self, samples: Samples) -> Batch:
        return self._source.fetch(samples)

    def plan(self, upcoming: Iterable[Samples]) -> None:
        self.plans.append([samples.index.tolist() for samples in upcoming])


def test_a_far_source_is_told_all_that_this_worker_will_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, from the leaf that is wanted now to the end of the run; not the leaves of others."""
    recipe = tiny_recipe()
    _, strategy, step = set_up(recipe)
    far = Far(strategy._source)
    monkeypatch.setattr(strategy, "_source", far)
    step.membership.generation = replace(TWO, step=0, first_leaves=((0, 1), (2, 3)), behind=())
    strategy.batch(step.leaf(1))
    strategy.close()

    def leaf(number: int, index: int) -> list[int]:
        size = len(far)
        return samples_of_leaf(recipe.seed, size, recipe.global_batch, recipe.leaves, number, index).index.tolist()  # type: ignore[no-any-return]

    assert far.plans == [[leaf(0, 1), leaf(1, 0), leaf(1, 1), leaf(2, 0), leaf(2, 1)]]


class Survivor:
    """Worker 0, which abandons an exchange with worker 1, and worker 1's end of it: a group that outlives that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, generation: Generation) -> None:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
        _, self.strategy, self.step = set_up(tiny_recipe())
        self._store, address = listen("127.0.0.1")
        self.membership = self.step.membership
        self.membership.generation = replace(generation, members=(Member(0, address), Member(1, address)))
        self.membership.promised = generation.number
        self.old = self.step.reduced.flat
        self.slices = tree.slices(len(self.old), 2)
        self.peer = Group(self.membership.generation, 1, Device("cpu", 1), "127.0.0.1", threading.Condition())

    def abandon(self, exchange: Callable[[], Any], until: Callable[[], None]) -> None:
        """Go through an exchange until worker 1 has done its part of it and falls silent, and worker 0 is told that
        there will be another generation."""

        def fall_silent() -> None:
            self.peer.connect(lambda: False)
            until()
            with self.membership.changed:
                self.membership.promised += 1
                self.membership.changed.notify_all()

        other = threading.Thread(target=fall_silent, daemon=True)
        other.start()
        exchange()
        other.join()

    def receive_late(self, start: int, stop: int, tag: int) -> None:
        """Worker 1 goes on where it was; afterwards all that it has sent is where worker 0 had wanted it."""
        late = torch.full((stop - start,), 7.0)
        self.peer.post([(late, 0, tag)], [])
        self.peer.wait(lambda: False)
        deadline = time.monotonic() + 10
        while not torch.equal(self.old[start:stop], late):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.peer.drop()
        self.strategy.close()


def test_what_a_lost_member_still_sends_of_a_result_does_not_reach_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had sent its sums, was cut off or stopped before its slice of the result, and expelled; then it is back."""
    one = Survivor(monkeypatch, replace(TWO, step=0, behind=()))
    step, (mine, theirs) = one.step, one.slices
    for leaf in step.missing():
        step.hold(leaf, one.strategy.contribution(leaf))

    def half() -> None:
        sums, result = torch.empty(theirs[1] - theirs[0]), torch.empty(mine[1])
        one.peer.post([(torch.zeros(mine[1]), 0, synchronous.tag_of((1, 1)))], [(sums, 0, synchronous.tag_of((1, 0)))])
        one.peer.wait(lambda: False)
        # Who sends its own slice of the result waits for the others already.
        one.peer.post([], [(result, 0, synchronous.RESULT_TAG)])
        one.peer.wait(lambda: False)

    one.abandon(lambda: one.strategy.exchange(step), half)
    step.reduced.flat.fill_(1.0)
    one.receive_late(*theirs, synchronous.RESULT_TAG)
    assert step.reduced.flat.eq(1.0).all()


def test_what_a_lost_member_still_sends_to_one_behind_does_not_reach_a_later_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Survivor(monkeypatch, TWO)
    step, is_waiting, post = one.step, threading.Event(), Group.post

    def post_and_say(group: Group, *transfers: Any) -> None:
        post(group, *transfers)
        if group.rank == 0:
            is_waiting.set()

    def wait() -> None:
        assert is_waiting.wait(10)

    monkeypatch.setattr(Group, "post", post_and_say)
    one.abandon(lambda: one.strategy.enter(step), wait)
    step.reduced.flat.fill_(1.0)
    one.receive_late(0, len(one.old), catchup.CATCH_UP_TAG)
    assert step.reduced.flat.eq(1.0).all()
