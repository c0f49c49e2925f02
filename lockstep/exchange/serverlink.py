"""A worker's connection to one server, for one generation.

A thread receives, and the loop waits on a condition, so that it can leave at any moment. What is received, and what it
means, is for each strategy to say.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from lockstep.exchange import link
from lockstep.exchange.group import PeerFailed
from lockstep.exchange.link import Header, Traffic
from lockstep.generation import Generation, Member
from lockstep.membership import Membership


class ServerLink(ABC):
    def __init__(
        self, server: Member, generation: Generation, membership: Membership, traffic: Traffic, length: int
    ) -> None:
        """Connect; PeerFailed if that cannot be. `length` is that of the flat vector."""
        self.server = server
        self.error: str | None = None
        self._membership = membership
        who = generation.secret, generation.number, membership.id
        try:
            self.connection = link.connect(server.address, *who, membership.host, traffic, length)
        except OSError as error:
            raise PeerFailed(f"no connection to server {server.id}: {error}", server=server.id) from None
        self._thread = threading.Thread(target=self._receive, name="server", daemon=True)
        self._thread.start()

    @abstractmethod
    def read(self, header: Header) -> bool:
        """Read what follows a header; False at the end of the stream. Called by the thread."""

    @abstractmethod
    def note(self, header: Header) -> None:
        """Take note of what was read. Called by the thread, which holds `membership.changed`."""

    def check(self) -> None:
        if self.error is not None:
            raise PeerFailed(self.error, server=self.server.id)

    def _receive(self) -> None:
        error = "the server closed the connection"
        try:
            while (header := self.connection.receive()) is not None and self.read(header):
                with self._membership.changed:
                    self.note(header)
                    self._membership.changed.notify_all()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        with self._membership.changed:
            self.error = error
            self._membership.changed.notify_all()

    def close(self) -> None:
        """After this the thread is gone, and nothing is written to memory that was given to this end."""
        self.connection.close()
        self._thread.join()


L = TypeVar("L", bound=ServerLink)


def connect_all(generation: Generation, make: Callable[[int, Member], L]) -> list[L]:
    """A link to every server, by its place; all or none."""
    links: list[L] = []
    try:
        for slot, server in enumerate(generation.servers):
            links.append(make(slot, server))
    except PeerFailed:
        for one in links:
            one.close()
        raise
    return links
