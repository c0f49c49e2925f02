"""The supervisor's side of the control connections: who may connect, and what goes back and forth."""

from __future__ import annotations

import asyncio
from typing import Protocol

from lockstep import wire
from lockstep.engines.hosts import Send
from lockstep.wire import Message

HANDSHAKE_SECONDS = 10.0
CLOSING_SECONDS = 1.0
"""How long a last message may take to one that is stopped."""


class Owner(Protocol):
    """Whoever is at the other end of the connections: the supervisor."""

    async def welcome(self, worker: int) -> Message | None:
        """The answer to a process that shows the token; None for one that is not expected."""

    async def fetch(self, worker: int, name: str, writer: asyncio.StreamWriter) -> None: ...

    async def store(self, worker: int, reader: asyncio.StreamReader) -> Message: ...

    def on_message(self, worker: int, message: Message) -> None: ...

    def on_end(self, worker: int) -> None: ...

    def on_command(self, command: Message) -> Message: ...


class HostOwner(Protocol):
    """Whoever looks after hosts that join."""

    def on_join(self, hello: Message, peer: str, send: Send) -> int | None:
        """The number of a host whose agent shows the token; None for one that was told why it may not take part."""

    def on_message(self, number: int, message: Message) -> None: ...

    def on_end(self, number: int) -> None: ...


class Control:
    """Listens on one address; hands every message of an authenticated process to its owner, and those of hosts that
    join to theirs."""

    def __init__(self, token: str, owner: Owner, hosts: HostOwner | None = None) -> None:
        self._token = token
        self._owner = owner
        self._hosts = hosts
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._agents: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        """Those that hear the processes."""
        self._server: asyncio.Server | None = None
        self.address = ""
        self.port = 0

    async def start(self, host: str, port: int = 0, shown: str | None = None) -> None:
        """`shown` is the address by which others find it, if that is another one."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"{shown or host}:{self.port}"

    def send(self, worker: int, message: Message) -> None:
        writer = self._writers.get(worker)
        if writer is not None and not writer.is_closing():
            writer.write(wire.encode(message))

    def is_connected(self, worker: int) -> bool:
        return worker in self._writers

    def drop(self, worker: int) -> None:
        """Tell a process that it is out, and hear it no more: it ends by itself if nobody can end it."""
        self.send(worker, {"type": "shutdown"})
        if (writer := self._writers.get(worker)) is not None:
            writer.close()

    def send_all(self, message: Message) -> None:
        for worker in self._writers:
            self.send(worker, message)

    async def close(self) -> None:
        """End all connections, also those whose other end stays; afterwards nobody is heard any more."""
        if self._server is not None:
            self._server.close()
        for writer in [*self._writers.values(), *self._agents]:
            writer.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSING_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker: int | None = None
        try:
            hello = await self._greet(reader)
            if hello is None:
                return
            if "agent" in hello:
                await self._serve_agent(hello, reader, writer)
                return
            if "command" in hello:
                writer.write(wire.encode(self._owner.on_command(hello["command"])))
                await writer.drain()
                return
            if "fetch" in hello or "store" in hello:
                await self._transfer(hello, reader, writer)
                return
            welcome = await self._owner.welcome(hello["id"])
            if welcome is None or hello["id"] in self._writers:
                return
            worker = int(hello["id"])
            self._writers[worker] = writer
            if (task := asyncio.current_task()) is not None:
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            self.send(worker, welcome)
            while True:
                self._owner.on_message(worker, await wire.read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, wire.BadFrame):
            pass
        finally:
            writer.close()
            if worker is not None:
                del self._writers[worker]
                self._owner.on_end(worker)

    async def _serve_agent(self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The connection of a host that joins, to its end."""

        def send(message: Message) -> None:
            if not writer.is_closing():
                writer.write(wire.encode(message))

        if self._hosts is None:
            send({"type": "refused", "sentence": "this run takes no other hosts: start or resume it with --listen"})
            return
        number = self._hosts.on_join(hello, str(writer.get_extra_info("peername")[0]), send)
        if number is None:
            return
        self._agents.add(writer)
        try:
            while True:
                self._hosts.on_message(number, await wire.read_frame(reader))
        finally:
            self._agents.discard(writer)
            self._hosts.on_end(number)

    async def _transfer(self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A checkpoint to or from a worker that is connected already."""
        if hello["id"] not in self._writers:
            return
        if "fetch" in hello:
            await self._owner.fetch(hello["id"], str(hello["fetch"]), writer)
            return
        writer.write(wire.encode(await self._owner.store(hello["id"], reader)))
        await writer.drain()

    async def _greet(self, reader: asyncio.StreamReader) -> Message | None:
        """The greeting of a process that shows the token of this job; whoever does not is dropped without an answer."""
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            hello = await wire.read_frame(reader, wire.MAX_GREETING)
        if hello["type"] != "hello" or not wire.is_shown(self._token, hello.get("token")):
            return None
        if isinstance(hello.get("agent"), dict):
            return hello  # whatever its version: it is told what is wrong
        if hello.get("version") != wire.PROTOCOL_VERSION or "agent" in hello:
            return None
        is_command, is_worker = isinstance(hello.get("command"), dict), isinstance(hello.get("id"), int)
        return hello if is_command or is_worker else None
