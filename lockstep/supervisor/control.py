"""The supervisor's side of the control connections: who may connect, and what goes back and forth."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

from lockstep import wire
from lockstep.wire import Message

HANDSHAKE_SECONDS = 10.0


class Control:
    """Listens on one address; hands every message of an authenticated process to `on_message`."""

    def __init__(
        self,
        token: str,
        welcome: Callable[[int], Message | None],
        on_message: Callable[[int, Message], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._token = token
        self._welcome = welcome
        self._on_message = on_message
        self._on_end = on_end
        self._writers: dict[int, asyncio.StreamWriter] = {}
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

    def send_all(self, message: Message) -> None:
        for worker in self._writers:
            self.send(worker, message)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers.values():
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker: int | None = None
        try:
            candidate = await self._greet(reader)
            welcome = self._welcome(candidate) if candidate is not None else None
            if candidate is None or welcome is None:
                return
            worker = candidate
            self._writers[worker] = writer
            self.send(worker, welcome)
            while True:
                self._on_message(worker, await wire.read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, wire.BadFrame):
            pass
        finally:
            writer.close()
            if worker is not None:
                del self._writers[worker]
                self._on_end(worker)

    async def _greet(self, reader: asyncio.StreamReader) -> int | None:
        """The worker's number, if it shows the token of this job; whoever does not is dropped without an answer."""
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            hello = await wire.read_frame(reader, wire.MAX_GREETING)
        token, worker = hello.get("token"), hello.get("id")
        if hello["type"] != "hello" or not isinstance(token, str) or not isinstance(worker, int):
            return None
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        if hello.get("version") != wire.PROTOCOL_VERSION or worker in self._writers:
            return None
        return worker
