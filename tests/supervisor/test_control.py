"""Who may connect: strangers are dropped without an answer, and do not disturb those who belong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from lockstep import wire
from lockstep.supervisor import control
from lockstep.supervisor.control import Control
from lockstep.wire import Message


class Owner:
    """Takes down what it hears."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Message]] = []
        self.ends: list[int] = []

    async def welcome(self, worker: int) -> Message | None:
        return {"type": "welcome"} if worker < 2 else None

    async def fetch(self, worker: int, name: str, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.encode({"type": "end", "name": name}))

    async def store(self, worker: int, reader: asyncio.StreamReader) -> Message:
        return {"type": "checkpointed"}

    def on_message(self, worker: int, message: Message) -> None:
        self.messages.append((worker, message))

    def on_end(self, worker: int) -> None:
        self.ends.append(worker)

    def on_command(self, command: Message) -> Message:
        return {"type": "ok", "heard": command}


class HostOwner:
    """Lets in whoever is called "welcome"."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Message]] = []
        self.ends: list[int] = []

    def on_join(self, hello: Message, peer: str, send: Callable[[Message], None]) -> int | None:
        is_welcome = hello["agent"].get("host") == "welcome"
        send({"type": "welcome", "peer": peer} if is_welcome else {"type": "refused", "sentence": "no"})
        return 7 if is_welcome else None

    def on_message(self, number: int, message: Message) -> None:
        if message["type"] == "nonsense":
            raise wire.BadFrame("nonsense")
        self.heard.append((number, message))

    def on_end(self, number: int) -> None:
        self.ends.append(number)


def scenario(talk: Callable[[Control], Awaitable[None]]) -> tuple[list[tuple[int, Message]], list[int]]:
    """Run a control server and talk to it; what it let through, and whose connections ended."""
    owner = Owner()

    async def main() -> None:
        server = Control("secret", owner)
        await server.start("127.0.0.1")
        await talk(server)
        await server.close()

    asyncio.run(main())
    return owner.messages, owner.ends


async def connect(server: Control) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def hello(**changes: object) -> Message:
    return {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": "secret", "id": 0, **changes}


async def is_refused(server: Control, data: bytes) -> bool:
    reader, writer = await connect(server)
    writer.write(data)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer == b""


def test_a_worker_with_the_token_is_welcome_and_heard() -> None:
    async def talk(server: Control) -> None:
        reader, writer = await connect(server)
        writer.write(wire.encode(hello()) + wire.encode({"type": "ready"}))
        assert (await wire.read_frame(reader))["type"] == "welcome"
        server.send(0, {"type": "generation"})
        assert (await wire.read_frame(reader))["type"] == "generation"
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)

    messages, ends = scenario(talk)
    assert messages == [(0, {"type": "ready"})]
    assert ends == [0]


def test_whoever_stays_is_left_before_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """As other ranks do under a launcher, until the command itself has ended: nothing is cut off with a traceback."""
    staying: list[asyncio.StreamWriter] = []

    async def talk(server: Control) -> None:
        reader, writer = await connect(server)
        writer.write(wire.encode(hello()))
        assert (await wire.read_frame(reader))["type"] == "welcome"
        staying.append(writer)

    assert scenario(talk) == ([], [0])
    assert caplog.text == ""


def test_a_command_with_the_token_is_answered() -> None:
    async def talk(server: Control) -> None:
        reader, writer = await connect(server)
        writer.write(wire.encode(hello(id=None, command={"type": "stop"})))
        assert await wire.read_frame(reader) == {"type": "ok", "heard": {"type": "stop"}}
        writer.close()
        assert await is_refused(server, wire.encode(hello(token="wrong", command={"type": "stop"})))

    assert scenario(talk) == ([], [])


@pytest.mark.parametrize(
    "greeting",
    [
        hello(token="wrong"),
        hello(token=None),
        hello(token=["secret"]),
        hello(token="\ud800"),
        hello(id="0"),
        hello(id=7),
        hello(version=0),
        hello(type="ready"),
    ],
    ids=["token", "none", "list", "half a pair", "text id", "unknown id", "version", "type"],
)
def test_a_wrong_greeting_is_refused(greeting: Message, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(server: Control) -> None:
        assert await is_refused(server, wire.encode(greeting))

    assert scenario(talk) == ([], [])
    assert caplog.text == ""


def test_garbage_disturbs_nobody() -> None:
    """A port scanner, HTTP, huge lengths, random bytes: refused, while a member goes on."""
    numbers = random.Random(0)
    garbage = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x05{{{{{",
        b"\x00\x01\x00\x01" + b"x" * 100,
        wire.encode(hello())[:-3],
        *(numbers.randbytes(numbers.randrange(1, 400)) for _ in range(50)),
        (b"\x00\x00\x40\x00" + b"[" * 0x4000),
    ]

    async def talk(server: Control) -> None:
        reader, writer = await connect(server)
        writer.write(wire.encode(hello()))
        await wire.read_frame(reader)
        for data in garbage:
            assert await is_refused(server, data)
        assert await is_refused(server, wire.encode(hello()))  # the number is taken
        writer.write(wire.encode({"type": "still here"}))
        server.send(0, {"type": "still there"})
        assert (await wire.read_frame(reader))["type"] == "still there"
        writer.close()

    messages, _ = scenario(talk)
    assert messages == [(0, {"type": "still here"})]


def test_a_silent_stranger_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "HANDSHAKE_SECONDS", 0.1)

    async def talk(server: Control) -> None:
        reader, writer = await connect(server)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()

    assert scenario(talk) == ([], [])


def test_only_a_connected_worker_may_fetch_and_store_checkpoints() -> None:
    async def talk(server: Control) -> None:
        for rest in ({"fetch": "step-000000001"}, {"store": "step-000000001"}):
            assert await is_refused(server, wire.encode(hello(**rest)))
            assert await is_refused(server, wire.encode(hello(token="wrong", **rest)))
        reader, writer = await connect(server)
        writer.write(wire.encode(hello()))
        await wire.read_frame(reader)
        other_reader, other_writer = await connect(server)
        other_writer.write(wire.encode(hello(fetch="step-000000001")))
        assert await wire.read_frame(other_reader) == {"type": "end", "name": "step-000000001"}
        other_writer.close()
        writer.close()

    assert scenario(talk)[0] == []


async def answer_to(server: Control, greeting: Message) -> Message:
    reader, writer = await connect(server)
    writer.write(wire.encode(greeting))
    answer = await asyncio.wait_for(wire.read_frame(reader), 5)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    return answer


def test_an_agent_with_the_token_is_heard_until_it_talks_nonsense() -> None:
    """One of another version is told so; one without the token hears nothing."""
    hosts = HostOwner()

    async def main() -> None:
        server = Control("secret", Owner(), hosts)
        await server.start("127.0.0.1")
        assert await is_refused(server, wire.encode(hello(token="wrong", agent={"host": "welcome"})))
        assert await is_refused(server, wire.encode(hello(agent="welcome")))
        assert (await answer_to(server, hello(version=99, agent={"host": "other"})))["type"] == "refused"
        reader, writer = await connect(server)
        writer.write(wire.encode(hello(agent={"host": "welcome"})) + wire.encode({"type": "heartbeat"}))
        assert await wire.read_frame(reader) == {"type": "welcome", "peer": "127.0.0.1"}
        writer.write(wire.encode({"type": "nonsense"}) + wire.encode({"type": "heartbeat"}))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await server.close()

    asyncio.run(main())
    assert hosts.heard == [(7, {"type": "heartbeat"})]
    assert hosts.ends == [7]


def test_a_run_that_does_not_listen_for_hosts_says_so() -> None:
    async def talk(server: Control) -> None:
        answer = await answer_to(server, hello(agent={"host": "welcome"}))
        assert "--listen" in answer["sentence"]

    assert scenario(talk) == ([], [])
