"""A worker's connections to the servers of `async`: questions and their answers, one at a time for each server.

A thread per connection receives, and the loop waits for a condition, so that it can leave at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lockstep.exchange import link
from lockstep.exchange.group import Lost, PeerFailed
from lockstep.exchange.link import Connection, Header, Traffic
from lockstep.generation import Generation, Member
from lockstep.membership import Membership

Answer = tuple[Header, Tensor]
"""What came, and its payload as bytes, which are overwritten by the next answer of this server."""


@dataclass
class Call:
    server: Member
    connection: Connection
    answer: Answer | None = None
    error: str | None = None
    buffer: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    thread: threading.Thread | None = None


class Calls:
    """Connections to all servers of a generation, in the order of what they own."""

    def __init__(self, generation: Generation, membership: Membership, traffic: Traffic, length: int) -> None:
        self._generation = generation
        self._length = length
        self._membership = membership
        self._calls: list[Call] = []
        try:
            for server in generation.servers:
                self._calls.append(self._connect(server, traffic))
        except PeerFailed:
            self.close()
            raise

    def _connect(self, server: Member, traffic: Traffic) -> Call:
        generation, membership = self._generation, self._membership
        try:
            connection = link.connect(
                server.address,
                generation.secret,
                generation.number,
                membership.id,
                membership.host,
                traffic,
                self._length,
            )
        except OSError as error:
            raise PeerFailed(f"no connection to server {server.id}: {error}", server=server.id) from None
        call = Call(server, connection)
        call.thread = threading.Thread(target=self._receive, args=(call,), name="answers", daemon=True)
        call.thread.start()
        return call

    def tell(self, slot: int, header: Header) -> None:
        """Say something to one server that has no answer."""
        self._calls[slot].connection.send(header)

    def ask(self, slot: int, header: Header) -> Answer:
        self._calls[slot].connection.send(header)
        return self._wait(self._calls[slot : slot + 1])[0]

    def ask_all(self, question: Callable[[int], tuple[Header, Tensor | None]]) -> list[Answer]:
        """Ask every server something, by its number, and wait for all answers."""
        for slot, call in enumerate(self._calls):
            header, payload = question(slot)
            view = None if payload is None else payload.view(torch.uint8).numpy().data
            call.connection.send(header, view)
        return self._wait(self._calls)

    def ids(self) -> list[int]:
        return [call.server.id for call in self._calls]

    def _wait(self, calls: list[Call]) -> list[Answer]:
        membership, generation = self._membership, self._generation

        def is_over() -> bool:
            is_lost = membership.has_left(generation) or any(call.error is not None for call in calls)
            return is_lost or all(call.answer is not None for call in calls)

        membership.wait(is_over)
        for call in calls:
            if call.answer is None and call.error is not None:
                raise PeerFailed(call.error, server=call.server.id)
        found = [call.answer for call in calls if call.answer is not None]
        if len(found) < len(calls):
            raise Lost("a new generation")
        for call in calls:
            call.answer = None
        return found

    def _receive(self, call: Call) -> None:
        error = "the server closed the connection"
        try:
            while (header := call.connection.receive()) is not None:
                if len(call.buffer) != header.num_bytes:
                    call.buffer = torch.from_numpy(np.empty(header.num_bytes, np.uint8))
                if not call.connection.receive_into(call.buffer.numpy().data, count=True):
                    break
                with self._membership.changed:
                    call.answer = header, call.buffer
                    self._membership.changed.notify_all()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        with self._membership.changed:
            call.error = error
            self._membership.changed.notify_all()

    def close(self) -> None:
        for call in self._calls:
            call.connection.close()
        for call in self._calls:
            if call.thread is not None:
                call.thread.join()
        self._calls.clear()
