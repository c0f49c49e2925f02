"""Processes that a launcher has started: torchrun, mpirun, srun, or whoever sets RANK and WORLD_SIZE.

This is rank 0's side. Its process is the supervisor, so signals and the exit code are the job's; worker 0 is its
child. Every other rank waits to be told what it is (`rank.py`). The launcher decides who lives: nobody is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from dataclasses import dataclass, field, replace

from lockstep import environment, parent, wire
from lockstep.engines import Command, OnExit, Site, meeting
from lockstep.engines.local import Local
from lockstep.engines.meeting import Meeting
from lockstep.errors import UserError

PATIENCE_SECONDS = 10.0
"""After so long the user is told who is waited for."""

_leashes: list[socket.socket] = []
"""Connections that end with this process, and not before: by that the other ranks know that its last words are said."""


@dataclass
class Rank:
    """Another rank, before and after it has been told what it is."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    has_part: bool = field(default=False)


class Env:
    assigns_devices = False

    def __init__(self, site: Site) -> None:
        self.host = "127.0.0.1"
        self._place = environment.place(os.environ)
        self._note = site.note
        self._local = Local(site)
        self._ranks: dict[int, Rank] = {}
        self._are_all_here = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Wait until all ranks have come."""
        place = self._place
        if place.world == 1:
            return
        listener, where = meeting.listen(place)
        server = await asyncio.start_server(lambda *streams: self._greet(where, *streams), sock=listener)
        try:
            if place.has_store:
                await asyncio.to_thread(meeting.announce, place, where)
            await self._await_all(where)
        finally:
            server.close()
        seen = [str(rank.writer.get_extra_info("sockname")[0]) for rank in self._ranks.values()]
        # The address by which others have found this host is one that they can reach.
        self.host = next((host for host in seen if not environment.is_loopback(host)), self.host)

    async def _await_all(self, where: Meeting) -> None:
        patience = min(PATIENCE_SECONDS, self._place.wait_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._are_all_here.wait()
                return
        self._note(f"waiting at {where} for {self._missing()}")
        try:
            async with asyncio.timeout(self._place.wait_seconds - patience):
                await self._are_all_here.wait()
        except TimeoutError:
            raise UserError(
                f"{self._missing()} of {self._place.world_name}={self._place.world} did not come to {where} within "
                f"{self._place.wait_seconds:g} s: look whether all run, and whether their hosts reach this one; "
                "LOCKSTEP_WAIT=SECONDS waits longer"
            ) from None

    def _missing(self) -> str:
        names = [str(rank) for rank in range(1, self._place.world) if rank not in self._ranks]
        return f"{'rank' if len(names) == 1 else 'ranks'} {', '.join(names)}"

    async def _greet(self, where: Meeting, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Whoever cannot prove that it belongs to this job is dropped without a reason."""
        try:
            async with asyncio.timeout(meeting.HANDSHAKE_SECONDS):
                hello = await wire.read_frame(reader, wire.MAX_GREETING)
                nonces = str(hello.get("nonce")), secrets.token_hex(16)
                shown = meeting.proof(where.token, "first", *nonces)
                writer.write(wire.encode({"type": "challenge", "nonce": nonces[1], "proof": shown}))
                answer = await wire.read_frame(reader, wire.MAX_GREETING)
            numbers = str(answer.get("rank")), str(answer.get("world"))
            if not meeting.is_proof(answer, where.token, "rank", *nonces, *numbers):
                raise wire.BadFrame("no proof")
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, wire.BadFrame):
            writer.close()
            return
        if (sentence := self._objection(answer)) is not None:
            writer.write(wire.encode({"type": "refused", "sentence": sentence}))
            writer.close()
            return
        self._ranks[answer["rank"]] = Rank(reader, writer)
        _leashes.append(socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())))
        if len(self._ranks) == self._place.world - 1:
            self._are_all_here.set()

    def _objection(self, answer: wire.Message) -> str | None:
        rank, world, place = answer.get("rank"), answer.get("world"), self._place
        if answer.get("version") != wire.PROTOCOL_VERSION:
            return f"rank {rank} has another version of Lockstep than rank 0: install the same on all hosts"
        if world != place.world or not isinstance(rank, int) or not 0 < rank < place.world:
            return f"rank {rank} of {world} does not belong to a job of {place.world_name}={place.world}"
        known = self._ranks.get(rank)
        if known is not None and not known.reader.at_eof():
            return f"rank {rank} has come twice: two processes, or two jobs, have the same variables"
        return None

    async def start(self, command: Command, on_exit: OnExit) -> None:
        if command.id == 0 or command.role == "evaluator":
            deaf = {parent.DEAF: "1"} if self._place.tells_all else {}
            await self._local.start(replace(command, environment={**command.environment, **deaf}), on_exit)
            return
        rank = self._ranks.get(command.id)
        if rank is None:
            raise OSError(f"{self._place.launcher} has started {self._place.world} processes, and no more")
        if rank.reader.at_eof():
            raise OSError(f"rank {command.id} has ended before the job began")
        rank.has_part = True
        message = {
            "type": "command",
            "arguments": command.arguments[1:],
            "environment": command.environment,
            "log": str(command.log.resolve()),
        }
        rank.writer.write(wire.encode(message))
        await rank.writer.drain()
        watcher = asyncio.create_task(_watch(command.id, rank.reader, on_exit))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    def kill(self, id_: int) -> None:
        """Other ranks are the launcher's to kill; they end with their control connection."""
        if id_ == 0 or id_ >= self._place.world:
            self._local.kill(id_)

    async def close(self, grace_seconds: float) -> None:
        """The other ranks end by themselves, after this process if the job has failed."""
        for watcher in self._watchers:
            watcher.cancel()
        if any(rank.has_part for rank in self._ranks.values()):
            for rank in self._ranks.values():
                if not rank.has_part:
                    rank.writer.write(wire.encode({"type": "end"}))
        await self._local.close(grace_seconds)


async def _watch(id_: int, reader: asyncio.StreamReader, on_exit: OnExit) -> None:
    """A rank says nothing more after it has become a worker; its end is the end of the connection."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    on_exit(id_, "has ended", True)
