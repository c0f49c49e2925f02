"""Connections between workers and servers: frames of a fixed header and raw numbers, over TCP. No torch here.

A connection belongs to one generation and is closed with it. A thread of its own sends, so that a peer that is slow to
read holds up nobody else; whoever hands it memory waits with `flush` before using that memory again.
"""

from __future__ import annotations

import contextlib
import enum
import queue
import socket
import struct
import threading
from dataclasses import dataclass, field

from lockstep import wire

MAGIC = b"lkst"
HANDSHAKE_SECONDS = 3.0
MAX_PAYLOAD = 1 << 36
_HEADER = struct.Struct("<4sBBxxIIIQ")


class Kind(enum.IntEnum):
    PUSH = 1
    """The sum of a subtree of a step, for the receiver's slice."""
    PULL = 2
    """The result of a step is wanted as soon as it is there."""
    RESULT = 3
    """The mean of a step, over `count` leaves."""
    PENDING = 15
    """The result of a step that was asked for will be sent when it is there."""
    GONE = 4
    """The result of a step is not kept any more."""
    IDLE = 5
    """The sender has computed all its leaves of a step."""
    COMPUTE = 6
    """A leaf that is late, for the receiver to compute as well."""
    ASK = 7
    """In `async`: the sender wants something to do; all before `step` is done, `index` - 1 is its last barrier."""
    TASK = 8
    """A leaf to compute; all before step `count` is done."""
    BARRIER = 9
    """Number `index` + 1: so many steps are done, and everyone stops there."""
    WEIGHTS = 10
    """The answer to PULL in `async`, after `count` updates."""
    APPLIED = 11
    """The answer to PUSH in `async`."""
    DONE = 12
    """All servers have applied a leaf."""
    FETCH = 13
    """Everything that the receiver keeps is wanted; the optimizer's state only with `level` 1."""
    STATE = 14
    """The answer to it."""


@dataclass(frozen=True)
class Header:
    kind: Kind
    step: int = 0
    level: int = 0
    index: int = 0
    count: int = 0
    num_bytes: int = 0

    def pack(self) -> bytes:
        return _HEADER.pack(MAGIC, self.kind, self.level, self.step, self.index, self.count, self.num_bytes)

    @staticmethod
    def unpack(data: bytes | bytearray) -> Header:
        magic, kind, level, step, index, count, num_bytes = _HEADER.unpack(data)
        if magic != MAGIC or kind not in set(Kind) or num_bytes > MAX_PAYLOAD:
            raise wire.BadFrame(f"no frame of a worker or server: {data!r}")
        return Header(Kind(kind), step, level, index, count, num_bytes)


@dataclass
class Traffic:
    """What a process has sent and received of vectors and states, in bytes. Several threads count."""

    sent: int = 0
    received: int = 0
    dropped_leaves: int = 0
    """Leaves that came too late for their step, and were left out of it."""

    def add(self, sent: int = 0, received: int = 0) -> None:
        with _COUNTING:
            self.sent += sent
            self.received += received


_COUNTING = threading.Lock()


@dataclass
class Connection:
    """One end; `receive` is for one thread, `send` for any."""

    socket: socket.socket
    traffic: Traffic = field(default_factory=Traffic)
    _outgoing: queue.SimpleQueue[tuple[Header, memoryview] | threading.Event | None] = field(
        default_factory=queue.SimpleQueue
    )

    def __post_init__(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(None)
        self._sender = threading.Thread(target=self._send, name="sender", daemon=True)
        self._sender.start()

    def send(self, header: Header, payload: memoryview | None = None) -> None:
        """Queue a frame. The payload must stay as it is until `flush`."""
        self._outgoing.put((header, memoryview(b"") if payload is None else payload))

    def flush(self) -> threading.Event:
        """Set when everything queued so far has been handed to the network, or the connection is lost."""
        done = threading.Event()
        self._outgoing.put(done)
        return done

    def _send(self) -> None:
        lost = False
        while (item := self._outgoing.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            elif not lost:
                header, payload = item
                try:
                    self.socket.sendall(header.pack())
                    if payload.nbytes:
                        self.socket.sendall(payload)
                    self.traffic.add(sent=payload.nbytes)
                except OSError:
                    lost = True  # the receiving thread sees it too, and says so

    def receive(self) -> Header | None:
        """The next frame's header; None at the end of the stream."""
        buffer = bytearray(_HEADER.size)
        return Header.unpack(buffer) if self.receive_into(memoryview(buffer)) else None

    def receive_into(self, view: memoryview, *, count: bool = False) -> bool:
        """Fill a piece of memory from the stream; False at its end."""
        rest = view
        while rest.nbytes:
            try:
                received = self.socket.recv_into(rest)
            except OSError:
                return False
            if received == 0:
                return False
            rest = rest[received:]
        if count:
            self.traffic.add(received=view.nbytes)
        return True

    def close(self) -> None:
        """End both threads' work at once. After this nothing is written to memory that was given to this end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._outgoing.put(None)
        if threading.current_thread() is not self._sender:
            self._sender.join()
        self.socket.close()


def connect(
    address: str, secret: str, generation: int, id_: int, host: str, traffic: Traffic, length: int
) -> Connection:
    """A worker's connection to a server; OSError if there is none to be had. `length` is that of the flat vector."""
    name, _, port = address.rpartition(":")
    connection = socket.create_connection((name, int(port)), HANDSHAKE_SECONDS, source_address=(host, 0))
    hello = {"type": "hello", "version": wire.PROTOCOL_VERSION, "secret": secret, "number": generation, "id": id_}
    connection.sendall(wire.encode({**hello, "length": length}))
    return Connection(connection, traffic)
