"""A worker's connections to the servers of `async`: questions and their answers, one at a time for each server."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lockstep.exchange.group import Lost
from lockstep.exchange.link import Header, Traffic
from lockstep.exchange.serverlink import ServerLink, connect_all
from lockstep.generation import Generation, Member
from lockstep.membership import Membership

Answer = tuple[Header, Tensor]
"""What came, and its payload as bytes, which are overwritten by the next answer of this server."""


class Call(ServerLink):
    def __init__(
        self, server: Member, generation: Generation, membership: Membership, traffic: Traffic, length: int
    ) -> None:
        self.answer: Answer | None = None
        self._buffer = torch.empty(0, dtype=torch.uint8)
        super().__init__(server, generation, membership, traffic, length)

    def read(self, header: Header) -> bool:
        if len(self._buffer) != header.num_bytes:
            self._buffer = torch.from_numpy(np.empty(header.num_bytes, np.uint8))
        return self.connection.receive_into(self._buffer.numpy().data, count=True)

    def note(self, header: Header) -> None:
        self.answer = header, self._buffer


class Calls:
    """Connections to all servers of a generation, in the order of what they own."""

    def __init__(self, generation: Generation, membership: Membership, traffic: Traffic, length: int) -> None:
        self._generation = generation
        self._membership = membership
        self._calls = connect_all(
            generation, lambda slot, server: Call(server, generation, membership, traffic, length)
        )

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
            if call.answer is None:
                call.check()
        found = [call.answer for call in calls if call.answer is not None]
        if len(found) < len(calls):
            raise Lost("a new generation")
        for call in calls:
            call.answer = None
        return found

    def close(self) -> None:
        for call in self._calls:
            call.close()
