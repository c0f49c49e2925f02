"""The supervisor's side of the control connections: who may connect, and what goes back and forth."""

from __future__ import annotations

import asyncio
import hmac
from typing import Protocol

from lockstep import wire
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


class Control:
    """Listens on one address; hands every message of an authenticated process to its owner."""

    def __init__(self, token: str, owner: Owner) -> None:
        self._token = token
        self._owner = owner
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._serving: set[asyncio.Task[None]] = set()
        """Those that hear the processes."""
        self._server: asyncio.Server | None = None
        self.address = ""

    async def start(self, host: str) -> None:
        self._server = await asyncio.start_server(self._serve, host, 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"{host}:{port}"

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
        for writer in self._writers.values():
            writer.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSING_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker: int | None = None
        try:
            hello = await self._greet(reader)
            if hello is None:
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
        token = hello.get("token")
        if hello["type"] != "hello" or not isinstance(token, str):
            return None
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        if hello.get("version") != wire.PROTOCOL_VERSION:
            return None
        is_command, is_worker = isinstance(hello.get("command"), dict), isinstance(hello.get("id"), int)
        return hello if is_command or is_worker else None
