"""Tells a cut network from a slow one.

Packets that are dropped silently look like a peer that takes its time. A worker that has been in one exchange for long
tries to connect to the other members; whom it cannot reach it reports, and the supervisor decides who must go.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from lockstep.generation import Generation, Member
from lockstep.membership import Membership
from lockstep.reporter import Reporter

LOOK_SECONDS = 0.5
CONNECT_SECONDS = 2.0


def watch_peers(membership: Membership, reporter: Reporter, patience: float) -> None:
    """Look after the exchanges of this process from now on."""
    arguments = membership, reporter, patience
    threading.Thread(target=_look, args=arguments, name="reach", daemon=True).start()


def _look(membership: Membership, reporter: Reporter, patience: float) -> None:
    place, since = None, 0.0
    while True:
        time.sleep(LOOK_SECONDS)
        now, generation = time.monotonic(), membership.generation
        if generation is None or reporter.phase() != "exchange" or not membership.is_settled:
            place = None
        elif place != (here := (generation.number, reporter.step())):
            place, since = here, now
        elif now - since > patience:
            for peer in unreachable(generation, membership.id):
                membership.send({"type": "lost", "number": generation.number, "peer": peer, "error": "no connection"})
            since = now


def unreachable(generation: Generation, me: int) -> list[int]:
    """The members that do not accept a connection."""
    others = [member for member in (*generation.members, *generation.servers) if member.id != me]
    if not others:
        return []
    with ThreadPoolExecutor(len(others)) as pool:
        answers = list(pool.map(_accepts, others))
    return [member.id for member, accepts in zip(others, answers, strict=True) if not accepts]


def _accepts(member: Member) -> bool:
    host, _, port = member.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
