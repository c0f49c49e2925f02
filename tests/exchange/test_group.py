"""Exchanges between real process groups, with threads as workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import FakeProcessGroup, FakeWork, PrefixStore

from lockstep.device import Device
from lockstep.engines.local import LOOPBACK_INTERFACE
from lockstep.exchange import group as program
from lockstep.exchange import tree
from lockstep.exchange.flat import Layout, Pool, Vector
from lockstep.exchange.group import Group, Lost, PeerFailed, listen
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


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_members_that_do_not_meet_leave_no_threads_and_no_sockets_behind() -> None:
    """As when generations follow each other faster than their members come."""
    process = pytest.importorskip("psutil").Process()
    store, address = listen("127.0.0.1")

    def wait_in_vain(number: int) -> None:
        changed, abandoned = threading.Condition(), threading.Event()
        generation = replace(generation_of(2, address), number=number)
        group = Group(generation, 0, Device("cpu", 1), "127.0.0.1", changed)
        threading.Timer(0.05, announce, (abandoned, changed)).start()
        with pytest.raises(Lost, match="new generation"):
            group.connect(abandoned.is_set)
        group.drop()

    before = set(threading.enumerate())
    wait_in_vain(1)  # what is made once stays
    wait_until(lambda: set(threading.enumerate()) <= before)
    threads, files = process.num_threads(), process.num_fds()
    for number in range(2, 12):
        wait_in_vain(number)
    wait_until(lambda: process.num_threads() <= threads and process.num_fds() <= files)
    del store


def test_one_that_has_left_before_the_others_came_does_not_hold_them_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there, and everyone else believes that it still is."""
    monkeypatch.setattr(program, "CONNECTING", timedelta(seconds=0.3))
    store, address = listen("127.0.0.1")
    generation = generation_of(2, address)
    PrefixStore(f"{generation.secret}/{generation.number}", store).set("here/1", "")
    group = Group(generation, 0, Device("cpu", 1), "127.0.0.1", threading.Condition())
    with pytest.raises(PeerFailed):
        group.connect(lambda: False)
    group.drop()


def test_a_transfer_may_take_longer_than_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow peer is not a dead one."""
    monkeypatch.setattr(program, "CONNECTING", timedelta(seconds=1))
    store, address = listen("127.0.0.1")
    generation, received = generation_of(2, address), torch.zeros(5)

    def work(rank: int) -> None:
        group = Group(generation, rank, Device("cpu", 1), "127.0.0.1", threading.Condition())
        group.connect(lambda: False)
        if rank == 0:
            group.post([], [(received, 1, 0)])
        else:
            time.sleep(1.5)
            group.post([(torch.ones(5), 0, 0)], [])
        group.wait(lambda: False)

    in_threads(2, work)
    assert received.tolist() == [1.0] * 5
    del store


class Nccl:
    """NCCL's backend, as far as it is used: what runs as one unit, and that a unit without transfers is none."""

    def __init__(self) -> None:
        self.units: list[list[str]] = []
        self.may_connect = threading.Event()
        self.may_connect.set()
        self.is_aborted = False

    def _start_coalescing(self) -> None:
        self.units.append([])

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> None:
        self.may_connect.wait(10)
        self.units[-1].append(f"receive {tag} from {peer}")

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> None:
        self.may_connect.wait(10)
        self.units[-1].append(f"send {tag} to {peer}")

    def _end_coalescing(self) -> FakeWork | None:
        return FakeWork() if self.units[-1] else None

    def abort(self) -> None:
        self.is_aborted = True


def on_nccl(backend: Any, changed: threading.Condition | None = None) -> Group:
    device = Device("cpu", 1)
    device.backend = "nccl"
    group = Group(generation_of(2, ""), 0, device, "127.0.0.1", changed or threading.Condition())
    group._group = backend
    return group


def test_on_nccl_what_is_posted_together_is_one_unit_and_nothing_is_none() -> None:
    backend, piece = Nccl(), torch.zeros(5)
    group = on_nccl(backend)
    group.post([(piece, 1, 3)], [(piece, 1, 4)])
    group.wait(lambda: False)
    group.post([], [])
    group.wait(lambda: False)
    assert backend.units == [["receive 4 from 1", "send 3 to 1"]]
    assert (group.traffic.sent, group.traffic.received) == (20, 20)
    group.drop()


def test_a_unit_is_made_as_the_backends_of_this_torch_want_it() -> None:
    """A process group takes a device there, its backend does not."""
    group = on_nccl(FakeProcessGroup._create_internal(0, 2))
    group.post([(torch.zeros(5), 1, 0)], [(torch.zeros(5), 1, 0)])
    group.wait(lambda: False)


def test_on_nccl_a_member_that_does_not_connect_holds_nobody() -> None:
    """The first transfer connects two members, and blocks until both are there."""
    backend, changed, abandoned = Nccl(), threading.Condition(), threading.Event()
    backend.may_connect.clear()
    group = on_nccl(backend, changed)
    group.post([], [(torch.zeros(5), 1, 0)])
    threading.Timer(0.1, announce, (abandoned, changed)).start()
    with pytest.raises(Lost, match="new generation"):
        group.wait(abandoned.is_set)
    group.drop()
    assert backend.is_aborted
    backend.may_connect.set()
