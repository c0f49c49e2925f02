"""The bytes of a control connection: frames of a 4-byte length and JSON. Both ends use this file."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

PROTOCOL_VERSION = 1
MAX_FRAME = 64 << 20
MAX_GREETING = 64 << 10
"""Nobody who has not shown the token may send more than this."""

Message = dict[str, Any]
_HEADER = struct.Struct(">I")


class BadFrame(Exception):  # noqa: N818
    """What came is not a frame of this protocol."""


def encode(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def decode(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame holds no JSON: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise BadFrame("a frame is not an object with a type")
    return message


def is_shown(secret: str, shown: object) -> bool:
    """Whether somebody has said the secret; how long the answer takes tells nothing about it."""
    return isinstance(shown, str) and hmac.compare_digest(to_bytes(shown), to_bytes(secret))


def to_bytes(text: str) -> bytes:
    """Also of text with half a surrogate pair: JSON can hold it, names of files have it, and strangers may send it."""
    return text.encode(errors="surrogatepass")


def _length(header: bytes, limit: int) -> int:
    (length,) = _HEADER.unpack(header)
    if length > limit:
        raise BadFrame(f"a frame of {length} bytes, the limit is {limit}")
    return int(length)


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_FRAME) -> Message:
    """The next message; IncompleteReadError at the end of the stream, BadFrame for garbage."""
    length = _length(await reader.readexactly(_HEADER.size), limit)
    return decode(await reader.readexactly(length))


def receive_frame(connection: socket.socket, limit: int = MAX_FRAME, deadline: float | None = None) -> Message | None:
    """The next message, or None at the end of the stream; TimeoutError at the deadline, by the monotonic clock."""
    header = _receive_exactly(connection, _HEADER.size, deadline)
    if header is None:
        return None
    body = _receive_exactly(connection, _length(header, limit), deadline)
    return None if body is None else decode(body)


def receive_file(connection: socket.socket, path: Path, count: int) -> None:
    """Write the next bytes of a stream to a file; ConnectionError if it ends before."""
    with path.open("wb") as file:
        while count > 0:
            piece = connection.recv(min(1 << 20, count))
            if not piece:
                raise ConnectionError("the stream ended inside a file")
            file.write(piece)
            count -= len(piece)


def _receive_exactly(connection: socket.socket, count: int, deadline: float | None = None) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < count:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            piece = connection.recv(min(1 << 20, count - len(pieces)))
        except ConnectionError:
            return None
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)
