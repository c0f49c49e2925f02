"""A parameter server by itself: what it answers, and what it does not put up with."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lockstep import server as program
from lockstep.config import Job
from lockstep.exchange import link
from lockstep.exchange.link import Connection, Header, Kind, Traffic
from lockstep.generation import Generation, Member
from lockstep.membership import Membership
from lockstep.server import Server, Service
from lockstep.strategies.served import Servers

LEAVES, STEP, LENGTH = 4, 7, 100
SECRET = "secret"


def generation(servers: int) -> Generation:
    members = (Member(0, ""), Member(1, ""))
    leaves = ((0, 1), (2, 3))
    ids = tuple(Member(5 + number, "") for number in range(servers))
    return Generation(3, members, LEAVES, SECRET, STEP, leaves, servers=ids)


def started(servers: int = 1, slot: int = 0, job: Job | None = None) -> Server:
    """A server of generation 3, without a supervisor."""
    membership = Membership(5 + slot, None)
    membership.generation, membership.promised = generation(servers), 3
    asked = job or Job(workers=2)
    server = Server(membership, lambda now: Service(now, slot, asked, lambda step, phase: None))
    threading.Thread(target=server.serve, daemon=True).start()
    return server


@pytest.fixture
def server() -> Server:
    return started()


def test_a_worker_that_hears_of_a_generation_first_is_waited_for() -> None:
    membership = Membership(5, None)
    server = Server(membership, lambda now: Service(now, 0, Job(workers=2), lambda step, phase: None))
    threading.Thread(target=server.serve, daemon=True).start()
    early = worker(server, 0)
    early.send(Header(Kind.PULL, STEP - 1))
    time.sleep(0.2)
    with membership.changed:
        membership.generation, membership.promised = generation(1), 3
        membership.changed.notify_all()
    assert result(early)[0].kind == Kind.GONE


def worker(server: Server, id_: int, length: int = LENGTH, secret: str = SECRET) -> Connection:
    connection = link.connect(server.address, secret, 3, id_, "127.0.0.1", Traffic(), length)
    connection.socket.settimeout(10)
    return connection


def push(connection: Connection, node: tuple[int, int], part: Any, step: int = STEP) -> None:
    array = np.asarray(part, np.float32)
    connection.send(Header(Kind.PUSH, step, *node, num_bytes=array.nbytes), array.view(np.uint8).data)
    assert connection.flush().wait(10)


def result(connection: Connection) -> tuple[Header, np.ndarray[Any, Any]]:
    """The next result; that it is pending is passed over."""
    while (header := connection.receive()) is not None and header.kind == Kind.PENDING:
        pass
    assert header is not None
    values = np.empty(header.num_bytes // 4, np.float32)
    assert connection.receive_into(values.view(np.uint8).data)
    return header, values


def test_sums_of_all_leaves_give_everyone_the_mean(server: Server) -> None:
    one, two = worker(server, 0), worker(server, 1)
    for connection in (one, two):
        connection.send(Header(Kind.PULL, STEP))
    push(one, (1, 0), np.full(LENGTH, 3.0))
    push(two, (1, 1), np.full(LENGTH, 5.0))
    for connection in (one, two):
        header, values = result(connection)
        assert (header.kind, header.step, header.count) == (Kind.RESULT, STEP, LEAVES)
        assert np.array_equal(values, np.full(LENGTH, 2.0))
    one.send(Header(Kind.PULL, STEP))
    assert result(one)[0].kind == Kind.RESULT, "late ones get it as well"
    one.send(Header(Kind.PULL, STEP - 1))
    assert result(one)[0].kind == Kind.GONE


def test_a_server_without_a_slice_answers_all_the_same() -> None:
    """More servers than blocks of 64 bytes."""
    server = started(servers=2)
    one, two = worker(server, 0, length=9), worker(server, 1, length=9)
    one.send(Header(Kind.PULL, STEP))
    push(one, (1, 0), [])
    push(two, (1, 1), [])
    header, values = result(one)
    assert (header.kind, len(values)) == (Kind.RESULT, 0)


def test_each_of_two_servers_gets_and_gives_one_half_of_the_vector() -> None:
    """F53: a worker sends each of them its part, and puts the parts of the result together."""
    length = 10 * LENGTH
    both = [started(2, slot) for slot in (0, 1)]
    members = tuple(Member(5 + slot, server.address) for slot, server in enumerate(both))
    membership, traffic, incoming = Membership(0, None), Traffic(), torch.zeros(length)
    servers = Servers(replace(generation(2), servers=members), membership, traffic, incoming)
    values = torch.arange(length, dtype=torch.float32)
    step: Any = SimpleNamespace(index=STEP, held={(2, 0): SimpleNamespace(flat=values)})
    servers.begin(step)
    servers.push(step, lambda: False)
    membership.wait(lambda: servers.has_news(step), 10)
    assert servers.has_result(step)
    assert torch.equal(incoming, values / LEAVES)
    got = [service_of(server).connections[0].traffic.received for server in both]
    assert sum(got) == traffic.received == 4 * length
    assert all(abs(part - 2 * length) <= 64 for part in got), "slices begin at multiples of 64 bytes"
    servers.close()


def service_of(server: Server) -> Service:
    assert isinstance(server._service, Service)
    return server._service


@pytest.mark.parametrize(
    ("node", "size", "step"),
    [
        ((3, 0), LENGTH, STEP),
        ((255, 0), LENGTH, STEP),
        ((0, 4), LENGTH, STEP),
        ((1, 2), LENGTH, STEP),
        ((0, 0), 1, STEP),
        ((0, 0), 101, STEP),
        ((0, 0), LENGTH, STEP + 1),
    ],
)
def test_a_sum_that_cannot_be_is_refused_and_the_others_go_on(
    server: Server, node: tuple[int, int], size: int, step: int
) -> None:
    wrong, right = worker(server, 0), worker(server, 1)
    push(wrong, node, np.zeros(size), step)
    assert wrong.receive() is None, "the connection is closed"
    right.send(Header(Kind.PULL, STEP))
    push(right, (2, 0), np.full(LENGTH, 4.0))
    assert np.array_equal(result(right)[1], np.ones(LENGTH))


def test_another_length_of_vectors_is_refused(server: Server) -> None:
    right = worker(server, 0)
    push(right, (1, 0), np.zeros(LENGTH))
    time.sleep(0.05)
    assert worker(server, 1, length=LENGTH + 64).receive() is None


@pytest.mark.parametrize("secret", ["wrong", "\ud800"], ids=["wrong", "half a pair"])
def test_who_does_not_know_the_secret_gets_no_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    assert worker(server, 0, secret=secret).receive() is None
    assert not raised


def test_strangers_who_say_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped after a while, however slowly they speak, and only so many are heard at once."""
    monkeypatch.setattr(program, "MAX_GREETINGS", 4)
    monkeypatch.setattr(program, "HANDSHAKE_SECONDS", 0.5)
    server = started()
    host, _, port = server.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port))) for _ in range(8)]
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        for stranger in strangers:
            try:
                stranger.sendall(b"\0")
            except OSError:
                continue
        time.sleep(0.1)
    one = worker(server, 0)
    one.send(Header(Kind.PULL, STEP - 1))
    assert result(one)[0].kind == Kind.GONE
    for stranger in strangers:
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b"", "the connection is closed"


def test_a_failure_to_accept_is_not_the_end(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """As when there are no files left."""
    accept, failures = server._listener.accept, [OSError("too many open files")] * 3

    class Listener:
        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return accept()

    worker(server, 0)  # the thread is waiting in the real one
    monkeypatch.setattr(server, "_listener", Listener())
    for id_ in (0, 1):
        one = worker(server, id_)
    one.send(Header(Kind.PULL, STEP - 1))
    assert result(one)[0].kind == Kind.GONE
    assert not failures
