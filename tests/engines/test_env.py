"""How ranks meet: who is let in, who is not, and what is said when somebody does not come."""

from __future__ import annotations

import asyncio
import gc
import json
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import environment, parent, wire
from lockstep.engines import Command, Site, meeting
from lockstep.engines.env import Env
from lockstep.environment import Place
from lockstep.errors import UserError


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Place:
    """This process is rank 0 of three."""
    for launcher in environment.LAUNCHERS:
        monkeypatch.delenv(launcher.mark, raising=False)
    variables = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {**variables, "LOCKSTEP_WAIT": "20"}.items():
        monkeypatch.setenv(name, value)
    return environment.place({**variables, "LOCKSTEP_WAIT": "20"})


def meet(*ranks: Callable[[], socket.socket]) -> tuple[Env, list[socket.socket]]:
    """Rank 0 in this loop, the others in threads, one after the other."""

    async def all_of_them() -> tuple[Env, list[socket.socket]]:
        engine = Env(Site(num_workers=3))
        opening = asyncio.create_task(engine.open())
        connections = [await asyncio.to_thread(rank) for rank in ranks]
        await opening
        return engine, connections

    return asyncio.run(all_of_them())


def rank(place: Place, number: int) -> Callable[[], socket.socket]:
    return lambda: meeting.find(replace(place, rank=number))


def test_ranks_meet_in_any_order(first: Place) -> None:
    engine, _ = meet(rank(first, 2), rank(first, 1))
    assert engine.host == "127.0.0.1"


def test_the_others_see_the_end_of_rank_0s_process_and_not_that_of_its_work(first: Place) -> None:
    """Who ends before rank 0 has said what went wrong makes the launcher kill it."""
    engine, connections = meet(rank(first, 1), rank(first, 2))
    del engine
    gc.collect()
    for connection in connections:
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)


@pytest.mark.parametrize("failed", [True, False])
def test_a_rank_fails_after_the_supervisor_and_not_before(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    near, far = socket.socketpair()
    monkeypatch.setenv(parent.LEASH, str(near.fileno()))
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=lambda: codes.put(parent.part(failed)), daemon=True).start()
    if failed:
        with pytest.raises(queue.Empty):
            codes.get(timeout=0.2)
    far.close()
    assert codes.get(timeout=10) == int(failed)
    near.close()


def test_a_local_process_has_nobody_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(parent.LEASH, raising=False)
    assert parent.part(failed=True) == 0


def test_a_rank_is_told_what_it_is(first: Place, tmp_path: Path) -> None:
    """Its own number is the number of its process; there are no more processes than ranks."""

    async def told() -> list[wire.Message | None]:
        engine = Env(Site(num_workers=3))
        opening = asyncio.create_task(engine.open())
        connections = [await asyncio.to_thread(rank(first, number)) for number in (1, 2)]
        await opening
        for number in (1, 2):
            command = Command(number, "worker", ["python", "-m", "x"], {"LOCKSTEP_ID": str(number)}, tmp_path / "log")
            await engine.start(command, lambda *_: None)
        with pytest.raises(OSError, match="has started 3 processes"):
            await engine.start(Command(3, "worker", [], {}, tmp_path / "log"), lambda *_: None)
        return [await asyncio.to_thread(wire.receive_frame, connection) for connection in connections]

    for number, message in enumerate(asyncio.run(told()), start=1):
        assert message is not None
        assert message["environment"] == {"LOCKSTEP_ID": str(number)}
        assert message["arguments"] == ["-m", "x"]


def test_the_end_of_a_rank_is_a_death(first: Place, tmp_path: Path) -> None:
    """At once: the connection that it has kept open ends with it."""

    async def ended() -> tuple[int, str, bool]:
        engine = Env(Site(num_workers=3))
        opening = asyncio.create_task(engine.open())
        connections = [await asyncio.to_thread(rank(first, number)) for number in (1, 2)]
        await opening
        seen: asyncio.Queue[tuple[int, str, bool]] = asyncio.Queue()
        command = Command(2, "server", ["python"], {}, tmp_path / "log")
        await engine.start(command, lambda *end: seen.put_nowait(end))
        connections[1].close()
        async with asyncio.timeout(10):
            return await seen.get()

    assert asyncio.run(ended()) == (2, "has ended", True)


def test_whoever_lacks_the_token_is_not_let_in_and_does_not_learn_it(
    first: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides ask for a proof: the stranger finds no rank 0, and the right ranks meet all the same."""

    def stranger() -> socket.socket:
        with pytest.raises(UserError, match="whoever listens there is not rank 0 of this job"):
            meeting.find(replace(first, rank=1, token="another", wait_seconds=0.3))
        return socket.socket()

    def liar(nonce: str, proof: str) -> socket.socket:
        """It does not mind that rank 0 may not be rank 0, and shows something that is no proof."""
        connection = socket.create_connection(("127.0.0.1", first.port), timeout=5)
        connection.sendall(wire.encode({"type": "hello", "nonce": nonce}))
        assert wire.receive_frame(connection) is not None
        rank = {"type": "rank", "version": wire.PROTOCOL_VERSION, "rank": 1, "world": 3}
        connection.sendall(wire.encode({**rank, "proof": proof}))
        assert wire.receive_frame(connection) is None
        return connection

    def noise() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", first.port))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection

    def proven_otherwise() -> socket.socket:
        return liar("mine", meeting.proof("another", "rank", "mine", "yours", "1", "3"))

    def half_a_pair() -> socket.socket:
        return liar("\ud800", "\ud800")

    meet(stranger, proven_otherwise, half_a_pair, noise, rank(first, 1), rank(first, 2))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"rank": 1}, "rank 1 has come twice"),
        ({"rank": 3, "world": 4}, "rank 3 of 4 does not belong to a job of WORLD_SIZE=3"),
    ],
)
def test_a_rank_of_another_job_is_refused_in_a_sentence(first: Place, other: dict[str, int], sentence: str) -> None:
    def refused() -> socket.socket:
        connection = meeting.find(replace(first, **other))  # type: ignore[arg-type]
        answer = wire.receive_frame(connection)
        assert answer is not None
        assert answer["type"] == "refused"
        assert sentence in answer["sentence"]
        return connection

    meet(rank(first, 1), refused, rank(first, 2))


def test_rank_0_says_who_did_not_come(first: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_WAIT", "0.5")
    with pytest.raises(UserError, match=r"rank 2 of WORLD_SIZE=3 did not come to 127.0.0.1:\d+ within 0.5 s"):
        meet(rank(first, 1))


def test_a_rank_says_that_it_has_not_found_rank_0(first: Place) -> None:
    with pytest.raises(UserError, match=r"rank 1 of 3 has not found rank 0 at 127.0.0.1:\d+ within 0.2 s"):
        meeting.find(replace(first, rank=1, wait_seconds=0.2))


def test_an_old_note_in_torchruns_store_is_read_again(first: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart it may still lead to where rank 0 was before, which is another program's port by now."""
    from torch._C._distributed_c10d import TCPStore

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    store = TCPStore("127.0.0.1", first.port, is_master=True, wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(10)
        store.set(meeting.NOTE, json.dumps({"port": silent.getsockname()[1], "token": "old"}))
        found: list[socket.socket] = []
        early = threading.Thread(target=lambda: found.append(meeting.find(replace(first, rank=1, has_store=True))))
        early.start()
        silent.accept()[0].close()
        meet(rank(replace(first, has_store=True), 2))
        early.join(10)
    assert len(found) == 1


def test_a_port_that_is_taken_is_named(first: Place) -> None:
    with (
        socket.create_server(("127.0.0.1", first.port)),
        pytest.raises(UserError, match=rf"cannot listen on port {first.port} .* MASTER_PORT"),
    ):
        meet()


def test_a_name_that_is_not_this_hosts_is_listened_for_everywhere(first: Place) -> None:
    """As behind a service of Kubernetes: the address that the others use is none of this host's own."""
    listener, _ = meeting.listen(replace(first, address="192.0.2.1", is_one_host=False))
    with listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    listener, _ = meeting.listen(replace(first, address="localhost", is_one_host=False))
    with listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    listener, _ = meeting.listen(first)
    with listener:
        assert listener.getsockname()[0] == "127.0.0.1"
