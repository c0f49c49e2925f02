"""A proxy in front of a server that makes things go wrong, by rule and always alike: latency, errors, cuts, silence.

`python -m tests.data.faultproxy PORT --latency SECONDS` runs one in a process of its own and prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CHUNK = 1 << 18


@dataclass(frozen=True)
class Fault:
    """What happens to a request."""

    status: int | None = None
    """This answer, and the server is not asked."""
    headers: tuple[str, ...] = ()
    """Of that answer."""
    delay_seconds: float = 0.0
    """Before the answer."""
    cut_after: int | None = None
    """Bytes of the body after which the connection is closed."""
    silent_after: int | None = None
    """Bytes of the body after which nothing comes any more."""


@dataclass
class Rule:
    """A fault for the next requests whose line or headers match."""

    fault: Fault
    pattern: str
    left: int


@dataclass
class FaultProxy:
    upstream_port: int
    latency_seconds: float = 0.0
    """Added to every request."""
    rules: list[Rule] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """The first line of every request, in the order in which they came."""
    most_open: int = 0
    """Requests that have been open at once, at most."""
    num_open: int = 0
    port: int = 0
    """Any that is free; the same when it runs again."""
    tls: ssl.SSLContext | None = None
    """With which clients are spoken to; not the server."""

    def inject(self, fault: Fault, *, pattern: str = "", times: int = 1) -> None:
        self.rules.append(Rule(fault, pattern, times))

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultProxy]:
        """In a thread of its own as long as the block."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        server = asyncio.run_coroutine_threadsafe(self._open(), loop).result(10)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(server.close)
            asyncio.run_coroutine_threadsafe(_end_all(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=CHUNK, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other."""
        upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port, limit=CHUNK)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while await self._one(reader, writer, *upstream):
                pass
        writer.transport.abort()
        upstream[1].close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> bool:
        """Whether the connection stays."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        text = head.decode("latin-1")
        self.requests.append(text.split("\r\n")[0])
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            return await self._answer(text, head + body, writer, server_reader, server_writer)
        finally:
            self.num_open -= 1

    async def _answer(
        self,
        text: str,
        request: bytes,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> bool:
        """Whether the connection stays."""
        fault = self._fault(text)
        await asyncio.sleep(self.latency_seconds + fault.delay_seconds)
        if fault.status is not None:
            lines = [f"HTTP/1.1 {fault.status} Injected", "Content-Length: 0", *fault.headers]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            await writer.drain()
            return True
        server_writer.write(request)
        await server_writer.drain()
        answer = await server_reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        return await self._pass_body(fault, _body(text, answer, server_reader), writer)

    async def _pass_body(self, fault: Fault, body: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> bool:
        limit = fault.cut_after if fault.cut_after is not None else fault.silent_after
        async for chunk in body:
            if limit is not None and len(chunk) >= limit:
                writer.write(chunk[:limit])
                await writer.drain()
                if fault.silent_after is not None:
                    await asyncio.sleep(3600)
                return False
            limit = limit if limit is None else limit - len(chunk)
            writer.write(chunk)
            await writer.drain()
        return True

    def _fault(self, text: str) -> Fault:
        for rule in self.rules:
            if rule.left > 0 and re.search(rule.pattern, text, re.IGNORECASE):
                rule.left -= 1
                return rule.fault
        return Fault()


def certificates(directory: Path) -> ssl.SSLContext:
    """An authority of one's own in `ca.pem`, and a server that has a certificate from it."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2")
    openssl("req", *new, "-keyout", "key.pem", "-out", "request.pem")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    sign = ["-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    openssl("x509", *sign, "-extfile", "names", "-out", "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "key.pem")
    return context


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _length(head: bytes) -> int:
    match = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(match[1]) if match else 0


async def _body(request: str, answer: bytes, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The bytes that follow an answer's head, as they are on the wire."""
    if request.startswith("HEAD ") or re.match(rb"HTTP/1.1 (1|204|304)", answer):
        return
    if re.search(rb"\r\ntransfer-encoding: *chunked", answer, re.IGNORECASE):
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
        return
    left = _length(answer)
    while left:
        chunk = await reader.read(min(left, CHUNK))
        if not chunk:
            raise EOFError
        left -= len(chunk)
        yield chunk


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    with FaultProxy(given.port, given.latency).running() as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()  # as long as whoever started it


if __name__ == "__main__":
    main()
