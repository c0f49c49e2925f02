"""A parameter server: `python -m lockstep.server`. It owns a slice of the vectors, adds up what workers send for it,
and gives everyone the result. It keeps no weights, so its death loses nothing, and it imports no torch.

For every connection there is a thread that reads; what it reads goes to the board of the generation, under one lock.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lockstep import addresses, injection, wire
from lockstep.config import Job
from lockstep.configfile import from_plain
from lockstep.enlist import enlist
from lockstep.errors import UserError
from lockstep.exchange import tree
from lockstep.exchange.backups import Backups
from lockstep.exchange.board import Board, Part, Result
from lockstep.exchange.link import HANDSHAKE_SECONDS, Connection, Header, Kind
from lockstep.generation import Generation
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.wire import BadFrame

MAX_GREETINGS = 256
"""Connections at a time that have not said yet who they are."""
PAUSE_SECONDS = 0.05
ANNOUNCED_SECONDS = 10.0
"""How long a worker that has heard of a generation first waits for the server to hear of it."""
TICK_SECONDS = 0.005
"""How often late leaves are looked for, where others compute them."""


@dataclass
class Service:
    """What a server does in one generation."""

    generation: Generation
    slot: int
    """Which of the slices is its own; the first server also looks after late leaves."""
    job: Job
    strike: Callable[[int, str], None]
    """Called with a step and what happens in it: tests inject failures there."""
    connections: dict[int, Connection] = field(default_factory=dict)
    is_over: bool = False

    def __post_init__(self) -> None:
        generation = self.generation
        self.board = Board(generation.num_leaves, generation.step, self.job.wait_for)
        self._lock = threading.Lock()
        self._waiting: dict[int, list[int]] = {}
        """Workers that wait for the result of a step."""
        self._backups = Backups(self.job.backup if self.slot == 0 else 0)
        self._backups.begin(self._owners(), time.monotonic())
        self._size = 0
        """Numbers in this server's slice."""

    def _owners(self) -> dict[int, int]:
        """Who is to compute each leaf of the step."""
        ids, step = self.generation.ids, self.board.step
        return {leaf: id_ for rank, id_ in enumerate(ids) for leaf in self.generation.leaves(rank, step)}

    def enter(self, worker: int, connection: Connection, length: int) -> bool:
        """Take a worker's connection into the generation; False if that is over, if it has one already, or if its
        vectors have another length than those of the others."""
        with self._lock:
            if self.is_over or worker in self.connections or worker not in self.generation.ids:
                return False
            start, stop = tree.slices(length, len(self.generation.servers))[self.slot]
            if self.connections and self._size != stop - start:
                return False
            self.connections[worker], self._size = connection, stop - start
            return True

    def handle(self, worker: int, header: Header, part: Part | None) -> None:
        with self._lock:
            if header.kind == Kind.PUSH and part is not None:
                self._push(worker, header, part)
            elif header.kind == Kind.PULL:
                self._pull(worker, header.step)
            elif header.kind == Kind.IDLE and header.step == self.board.step:
                self._backups.idle(worker, time.monotonic())
                self._assign()
            elif header.kind != Kind.IDLE:
                raise BadFrame(f"a worker sent {header.kind.name}")

    def _push(self, worker: int, header: Header, part: Part) -> None:
        board, num_leaves = self.board, self.generation.num_leaves
        if header.step > board.step:
            raise BadFrame(f"a worker is at step {header.step}, and step {board.step} is not done")
        if header.level >= num_leaves.bit_length() or header.index >= num_leaves >> header.level:
            raise BadFrame(f"the tree has no node ({header.level}, {header.index})")
        if len(part) != self._size:
            raise BadFrame(f"a sum of {len(part)} numbers, and the slice has {self._size}")
        arrived = board.arrived
        self.strike(header.step, "push")
        if (result := board.push(worker, header.step, (header.level, header.index), part)) is None:
            return
        self.strike(result.step, "result")
        self._backups.end(arrived)
        self._backups.begin(self._owners(), time.monotonic())
        for id_ in self._waiting.pop(result.step, []):
            self._send(id_, result)

    def _pull(self, worker: int, step: int) -> None:
        if (result := self.board.result(step)) is not None:
            self._send(worker, result)
        elif self.board.is_gone(step):
            self.connections[worker].send(Header(Kind.GONE, step))
        else:
            self._waiting.setdefault(step, []).append(worker)
            self.connections[worker].send(Header(Kind.PENDING, step))

    def _send(self, worker: int, result: Result) -> None:
        header = Header(Kind.RESULT, result.step, count=result.num_leaves, num_bytes=result.values.nbytes)
        self.connections[worker].send(header, result.values.view(np.uint8).data)

    def begin(self) -> None:
        if self.slot == 0 and self.job.backup:
            threading.Thread(target=self._look_after_late_leaves, name="late", daemon=True).start()

    @property
    def step(self) -> int:
        return self.board.step

    def _look_after_late_leaves(self) -> None:
        while not self.is_over:
            with self._lock:
                self._assign()
            time.sleep(TICK_SECONDS)

    def _assign(self) -> None:
        for worker, leaf in self._backups.assign(self.board.missing(), time.monotonic()):
            self.connections[worker].send(Header(Kind.COMPUTE, self.board.step, index=leaf))

    def close(self) -> None:
        with self._lock:
            self.is_over = True
            connections = list(self.connections.values())
        for connection in connections:
            connection.close()


class Serving(Protocol):
    """What a server does in one generation, as far as connections are concerned."""

    generation: Generation

    @property
    def step(self) -> int: ...

    def begin(self) -> None: ...

    def enter(self, worker: int, connection: Connection, length: int) -> bool: ...

    def handle(self, worker: int, header: Header, part: Part | None) -> None: ...

    def close(self) -> None: ...


class Server:
    """Accepts connections, and moves from one generation to the next."""

    def __init__(self, membership: Membership, make: Callable[[Generation], Serving]) -> None:
        self._membership = membership
        self._make = make
        self._service: Serving | None = None
        self._greetings = threading.BoundedSemaphore(MAX_GREETINGS)
        self._listener = addresses.listener(membership.host)
        self.address = f"{membership.host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def serve(self) -> None:
        """Until the supervisor ends this process."""
        membership = self._membership
        while True:
            generation = membership.settle()
            service = self._make(generation)
            service.begin()
            with membership.changed:
                self._service = service
                membership.changed.notify_all()
            membership.wait(lambda now=generation: membership.has_left(now))  # type: ignore[misc]
            service.close()

    def heartbeat(self) -> wire.Message:
        step = -1 if self._service is None else self._service.step
        return {"step": step, "leaf": None, "phase": "serve", "leaf_seconds": None}

    def _accept(self) -> None:
        """Whatever strangers do, workers are let in: too many greetings at once, or too few files, pass."""
        while True:
            connection: socket.socket | None = None
            try:
                connection, _ = self._listener.accept()
                if not self._greetings.acquire(blocking=False):
                    raise OSError("too many greetings at once")
                threading.Thread(target=self._serve, args=(connection,), name="reader", daemon=True).start()
            except (OSError, RuntimeError):
                if connection is not None:
                    connection.close()
                time.sleep(PAUSE_SECONDS)

    def _serve(self, accepted: socket.socket) -> None:
        """One connection, from its greeting to its end."""
        try:
            hello = self._greet(accepted)
        finally:
            self._greetings.release()
        service = None if hello is None else self._find(hello)
        if service is None or hello is None:
            accepted.close()
            return
        connection = Connection(accepted)
        try:
            if service.enter(hello["id"], connection, hello["length"]):
                _read(service, hello["id"], connection, hello["length"])
        except BadFrame as problem:
            print(f"lockstep server: worker {hello['id']}: {problem}", file=sys.stderr, flush=True)
        finally:
            connection.close()

    def _greet(self, accepted: socket.socket) -> wire.Message | None:
        """What a worker says first; None for whoever does not know the job's secret, and gets no answer."""
        try:
            hello = wire.receive_frame(accepted, wire.MAX_GREETING, time.monotonic() + HANDSHAKE_SECONDS)
        except (BadFrame, OSError):
            return None
        membership = self._membership
        membership.wait(lambda: membership.generation is not None, ANNOUNCED_SECONDS)
        generation = membership.generation
        if hello is None or generation is None or not wire.is_shown(generation.secret, hello.get("secret")):
            return None
        numbers = [hello.get(key) for key in ("number", "id", "length")]
        is_whole = all(isinstance(number, int) and number >= 0 for number in numbers)
        return hello if is_whole and hello.get("version") == wire.PROTOCOL_VERSION else None

    def _find(self, hello: wire.Message) -> Serving | None:
        """The service of the generation that a worker wants, once it is there."""
        number = int(hello["number"])
        self._membership.wait(
            lambda: self._service is not None and self._service.generation.number >= number, ANNOUNCED_SECONDS
        )
        service = self._service
        return service if service is not None and service.generation.number == number else None


def _read(service: Serving, worker: int, connection: Connection, length: int) -> None:
    while (header := connection.receive()) is not None:
        part: Part | None = None
        if header.num_bytes > 4 * length or header.num_bytes % 4 or (header.num_bytes and header.kind != Kind.PUSH):
            raise BadFrame(f"{header.num_bytes} bytes with {header.kind.name}")
        if header.kind == Kind.PUSH:
            part = np.empty(header.num_bytes // 4, np.float32)
            if not connection.receive_into(part.view(np.uint8).data, count=True):
                return
        service.handle(worker, header, part)


def run(start: Callable[[Membership, wire.Message, Line], Server]) -> None:
    """The process of a server: `start` makes it from the supervisor's welcome."""
    line, membership, welcome = enlist()
    try:
        membership.listen()
        server = start(membership, welcome, line)
        membership.heartbeat = server.heartbeat
        membership.send({"type": "ready", "address": server.address})
        server.serve()
    except BaseException as error:
        report(membership, error)
    membership.wait(lambda: False)  # the reader ends the process at the supervisor's word


def report(membership: Membership, error: BaseException) -> None:
    """Tell the supervisor what was raised, which ends the job."""
    text = traceback.format_exc()
    print(text, file=sys.stderr, flush=True)
    is_user = isinstance(error, UserError)
    membership.send({"type": "error", "user": is_user, "message": str(error) if is_user else text, "where": ""})


def start(membership: Membership, welcome: wire.Message, line: Line) -> Server:
    _, job = from_plain(welcome["config"], "the supervisor's configuration")
    strike = injection.striker(membership.id)

    def serve(generation: Generation) -> Service:
        slot = [server.id for server in generation.servers].index(membership.id)
        return Service(generation, slot, job, strike)

    return Server(membership, serve)


def main() -> None:
    run(start)


if __name__ == "__main__":
    main()
