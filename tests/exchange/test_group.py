"""Exchanges between real process groups, with threads as workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import torch

from lockstep.device import Device
from lockstep.engines.local import LOOPBACK_INTERFACE
from lockstep.exchange import tree
from lockstep.exchange.flat import Layout, Pool, Vector
from lockstep.exchange.group import Group, Lost, listen
from lockstep.generation import Generation, Member
from lockstep.membership import Membership
from lockstep.step import Leaf, Step
from lockstep.strategies.synchronous import transfer

LEAVES = 8


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)


def generation_of(members: int, address: str) -> Generation:
    leaves = tuple(tuple(share) for share in tree.share_leaves(LEAVES, members))
    return Generation(1, tuple(Member(i, address) for i in range(members)), LEAVES, "secret", 0, leaves)


def step_with(leaves: list[int], layout: Layout) -> Step:
    """A step that holds random contributions for these leaves, the same for every holder."""
    device = torch.device("cpu")
    step = Step(0, 0, Membership.alone(LEAVES), Pool(layout, device), Vector(layout, device))
    for leaf in leaves:
        vector = Vector(layout, device)
        vector.flat.copy_(torch.randn(layout.length, generator=torch.Generator().manual_seed(leaf)))
        step.hold(Leaf(0, leaf, 0), vector)
    return step


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def guarded(rank: int) -> None:
        try:
            work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert not errors, errors


@pytest.mark.parametrize("members", [2, 3, 5])
def test_everyone_gets_the_tree_sum_and_what_is_held_stays_untouched(members: int) -> None:
    layout = Layout.of(torch.nn.Linear(37, 11), channels_last=False)
    store, address = listen("127.0.0.1")
    generation = generation_of(members, address)
    whole = step_with(list(range(LEAVES)), layout).held[tree.root(LEAVES)].flat / LEAVES
    results: dict[int, torch.Tensor] = {}

    def work(rank: int) -> None:
        step = step_with(generation.leaves(rank, 0), layout)
        before = {node: vector.flat.clone() for node, vector in step.held.items()}
        group = Group(generation, rank, Device("cpu", 1), "127.0.0.1", threading.Condition())
        group.connect(lambda: False)
        transfer(group, step, LEAVES, lambda: False)
        results[rank] = step.reduced.flat
        assert {node: vector.flat.tolist() for node, vector in step.held.items()} == {
            node: flat.tolist() for node, flat in before.items()
        }

    in_threads(members, work)
    assert len(results) == members
    for result in results.values():
        assert torch.equal(result, whole)
    del store


def test_a_new_generation_ends_an_exchange_that_waits_for_a_silent_peer() -> None:
    layout = Layout.of(torch.nn.Linear(37, 11), channels_last=False)
    store, address = listen("127.0.0.1")
    generation = generation_of(2, address)
    changed, abandoned, connected = threading.Condition(), threading.Event(), threading.Barrier(2)
    done = threading.Event()

    def work(rank: int) -> None:
        group = Group(generation, rank, Device("cpu", 1), "127.0.0.1", changed)
        group.connect(lambda: False)
        connected.wait()
        if rank == 1:
            done.wait()  # silent: it neither sends nor receives
            return
        step = step_with(generation.leaves(rank, 0), layout)
        before = {node: vector.flat.clone() for node, vector in step.held.items()}
        threading.Timer(0.2, announce, (abandoned, changed)).start()
        with pytest.raises(Lost, match="new generation"):
            transfer(group, step, LEAVES, abandoned.is_set)
        group.drop()
        done.set()
        assert all(torch.equal(vector.flat, before[node]) for node, vector in step.held.items())

    in_threads(2, work)
    del store


def announce(event: threading.Event, condition: threading.Condition) -> None:
    event.set()
    with condition:
        condition.notify_all()


def test_the_store_listens_on_loopback_only() -> None:
    psutil = pytest.importorskip("psutil")
    store, address = listen("127.0.0.1")
    port = int(address.rpartition(":")[2])
    listening = [c.laddr.ip for c in psutil.Process(os.getpid()).net_connections() if c.laddr.port == port]
    assert set(listening) == {"127.0.0.1"}
    del store
