"""How ranks that a launcher started find rank 0, and how both sides show that they belong to the same job.

Rank 0 listens on the address that the launcher tells everyone, or leaves a note in torchrun's store. The token never
travels: each side proves that it knows it by a hash over numbers that both have chosen.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lockstep import wire
from lockstep.engines.store import Store
from lockstep.environment import Place, is_loopback
from lockstep.errors import UserError

HANDSHAKE_SECONDS = 10.0
PAUSE_SECONDS = 0.1
NOTE = "lockstep/rank-0"
"""The key in torchrun's store. A restart writes it anew; who reads an old one meets nobody there, and reads again."""


@dataclass(frozen=True)
class Meeting:
    """Where rank 0 listens."""

    address: str
    port: int
    token: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def listen(place: Place) -> tuple[socket.socket, Meeting]:
    """Rank 0's part: where it listens, and what the others must know of it."""
    listener = _listener(place.address, 0 if place.has_store else place.port, place.is_one_host)
    port, token = listener.getsockname()[1], secrets.token_hex(16) if place.has_store else place.token
    return listener, Meeting(place.address, port, token)


def announce(place: Place, meeting: Meeting) -> None:
    """Leave a note for the others where they cannot know where rank 0 listens. Takes a moment: it imports torch."""
    _store(place).put(NOTE, json.dumps({"port": meeting.port, "token": meeting.token}))


def _store(place: Place) -> Store:
    try:
        return Store(place.address, place.port, place.wait_seconds)
    except ConnectionError as error:
        raise UserError(f"{error}: MASTER_ADDR and MASTER_PORT must lead rank {place.rank} to it") from None


def _listener(address: str, port: int, is_one_host: bool) -> socket.socket:
    """On the address by which the others know this host; on all where that is none of its own, as with a service of
    Kubernetes, or one that it knows by another name than they do."""
    family, host = _resolved(address)
    if not is_one_host and is_loopback(host):
        host = ""
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL and host:
            return _listener_everywhere(port, family)
        raise _not_listening(address, port, error) from None


def _listener_everywhere(port: int, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server(("", port), family=family)
    except OSError as error:
        raise _not_listening("this host", port, error) from None


def _not_listening(address: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"rank 0 cannot listen on port {port} of {address} ({error.strerror}): set MASTER_PORT to a free one for every "
        "process"
    )


def _resolved(address: str) -> tuple[socket.AddressFamily, str]:
    """A name's first address, one of IPv4 if it has any."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET, ""  # a name that only the others know
    family, *_, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    return family, str(where[0])


def find(place: Place) -> socket.socket:
    """A connection to rank 0, who knows that this rank is here. Waits for it to come."""
    deadline = time.monotonic() + place.wait_seconds
    look_up, where, problem = _directory(place), f"{place.address}:{place.port}", "it has left no note there"
    while True:
        try:
            if (meeting := look_up()) is not None:
                where = str(meeting)
                return _introduced(place, meeting, deadline)
        except OSError as error:
            problem = error.strerror or str(error)
        except wire.BadFrame:
            problem = "whoever listens there is not rank 0 of this job"
        if time.monotonic() > deadline:
            raise UserError(
                f"rank {place.rank} of {place.world} has not found rank 0 at {where} within {place.wait_seconds:g} s "
                f"({problem}): look whether rank 0 runs, and whether this host reaches it; LOCKSTEP_WAIT=SECONDS waits "
                "longer"
            )
        time.sleep(PAUSE_SECONDS)


def _directory(place: Place) -> Callable[[], Meeting | None]:
    """What tells where rank 0 is now."""
    if not place.has_store:
        meeting = Meeting(place.address, place.port, place.token)
        return lambda: meeting
    store = _store(place)

    def look_up() -> Meeting | None:
        note = store.get(NOTE)
        return None if note is None else Meeting(place.address, **json.loads(note))

    return look_up


def _introduced(place: Place, meeting: Meeting, deadline: float) -> socket.socket:
    """Connect, and exchange proofs."""
    patience = min(HANDSHAKE_SECONDS, max(0.1, deadline - time.monotonic()))
    connection = socket.create_connection((meeting.address, meeting.port), timeout=patience)
    try:
        mine = secrets.token_hex(16)
        connection.sendall(wire.encode({"type": "hello", "nonce": mine}))
        answer = wire.receive_frame(connection, wire.MAX_GREETING, time.monotonic() + patience)
        if answer is None or not is_proof(answer, meeting.token, "first", mine, str(answer.get("nonce"))):
            raise wire.BadFrame("no proof")
        rank, world = str(place.rank), str(place.world)
        shown = proof(meeting.token, "rank", mine, answer["nonce"], rank, world)
        greeting = {"type": "rank", "version": wire.PROTOCOL_VERSION, "rank": place.rank, "world": place.world}
        connection.sendall(wire.encode({**greeting, "proof": shown}))
    except BaseException:
        connection.close()
        raise
    return connection


def proof(token: str, *parts: str) -> str:
    return hmac.new(wire.to_bytes(token), wire.to_bytes("\0".join(parts)), hashlib.sha256).hexdigest()


def is_proof(message: wire.Message, token: str, *parts: str) -> bool:
    return wire.is_shown(proof(token, *parts), message.get("proof"))
