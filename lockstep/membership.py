"""A worker's side of the control connection: which generation it is in, and what the supervisor has said.

One thread reads, one sends heartbeats; the training loop waits on `changed` and never on a socket. The reader answers
proposals at once, whatever the loop is doing: everything that a promise speaks about changes under `changed` only.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from lockstep import parent, wire
from lockstep.generation import Generation, solo
from lockstep.wire import Message

HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 60.0
"""How long a remote process waits for a word of the supervisor, which comes every second, before it gives up. A local
one is ended by the kernel with its parent, so that a supervisor that was merely paused finds its workers again."""


class Position(Protocol):
    """Where a worker stands: the step that its loop is in."""

    index: int
    computed: set[int]
    done: bool

    @property
    def reached(self) -> int: ...


@dataclass
class SentBack:
    """The position of a worker that has been sent back, until its loop is there."""

    index: int
    computed: set[int] = field(default_factory=set)
    done: bool = False

    @property
    def reached(self) -> int:
        return self.index


class Membership:
    """What a training loop knows of the job. `connection` is None for a process that trains alone."""

    def __init__(self, id_: int, connection: socket.socket | None) -> None:
        self.id = id_
        self.host = "127.0.0.1" if connection is None else str(connection.getsockname()[0])
        """The address by which the supervisor sees this process: others reach it there too, and it listens nowhere
        else."""
        self.changed = threading.Condition()
        self.generation: Generation | None = None
        self.promised = 0
        """The newest generation that was proposed: nothing may be finished in an older one."""
        self.position: Position | None = None
        """None as long as this worker has no state to speak of."""
        self.evaluations: dict[int, Message] = {}
        """Finished evaluations by step."""
        self.verified = -1
        """The last step whose state all members agreed on."""
        self.dispute: Message | None = None
        """What is to be computed a second time."""
        self.goes_back = False
        """Whether the loop must return to its snapshot of the verified step."""
        self.must_copy = False
        """Whether what this worker has is out of date, until it has copied the state of the others."""
        self.checkpoint_wanted: str | None = None
        """Why the supervisor wants a checkpoint now, if it does."""
        self.heartbeat: Callable[[], Message] = lambda: {
            "step": -1,
            "leaf": None,
            "phase": "setup",
            "leaf_seconds": None,
        }
        """What a heartbeat says; the loop sets it when there is something to say."""
        self.before_end: Callable[[], None] | None = None
        """What is done first when the supervisor ends the job; the process is killed if it takes too long."""
        self.assignment: Message | None = None
        """The checkpoint that an evaluator is to look at next."""
        self._connection = connection
        self._send_lock = threading.Lock()

    @staticmethod
    def alone(num_leaves: int) -> Membership:
        membership = Membership(0, None)
        membership.generation = solo(num_leaves)
        membership.promised = membership.generation.number
        return membership

    def listen(self) -> None:
        """Start to read and to send heartbeats."""
        if self._connection is not None and not ipaddress.ip_address(self.host).is_loopback:
            self._connection.settimeout(SILENCE_SECONDS)
        threading.Thread(target=self._read, name="control", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    @property
    def current(self) -> Generation:
        assert self.generation is not None, "the first generation has not been announced"
        return self.generation

    @property
    def is_first(self) -> bool:
        """The first member reports and writes checkpoints."""
        return self.current.members[0].id == self.id

    @property
    def is_settled(self) -> bool:
        """Whether the newest generation that was proposed has been announced."""
        return self.generation is not None and self.generation.number == self.promised

    def settle(self) -> Generation:
        """The generation to work in, after waiting for it if one is being formed."""
        self.wait(lambda: self.is_settled)
        return self.current

    def has_left(self, generation: Generation) -> bool:
        """Whether something newer than this generation is there or on its way."""
        return self.promised > generation.number

    def commit(self, position: Position, generation: Generation) -> bool:
        """Finish a step in this generation, unless a promise forbids it: then the step is not done."""
        with self.changed:
            position.done = not self.has_left(generation)
            return position.done

    def wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        with self.changed:
            self.changed.wait_for(until, timeout=seconds)

    def send(self, message: Message) -> None:
        if self._connection is None:
            return
        try:
            with self._send_lock:
                self._connection.sendall(wire.encode(message))
        except OSError:
            pass  # the reader sees the end of the connection and ends the process

    def _read(self) -> None:
        assert self._connection is not None
        while True:
            try:
                message = wire.receive_frame(self._connection)
            except wire.BadFrame as error:
                _end(f"the supervisor sent something strange: {error}")
            except TimeoutError:
                _end(f"nothing was heard from the supervisor for {SILENCE_SECONDS:.0f} s")
            if message is None:
                _end("the supervisor is gone")
            elif message["type"] == "shutdown":
                if self.before_end is not None:
                    self.before_end()
                _end(None, parent.part(bool(message.get("failed"))))
            else:
                try:
                    with self.changed:
                        self._handle(message)
                        self.changed.notify_all()
                except Exception as error:  # a worker that hears nothing more must not linger
                    _end(f"cannot handle {message['type']!r} from the supervisor: {error!r}")

    def _handle(self, message: Message) -> None:
        kind = message["type"]
        if kind == "propose":
            self._promise(message["number"])
        elif kind == "generation":
            self._enter(Generation.from_plain(message["generation"]))
        elif kind == "evaluate":
            self.assignment = message
        elif kind == "evaluated":
            self.evaluations[message["step"]] = message
        elif kind == "verified":
            self.verified = message["step"]
        elif kind == "dispute":
            self.dispute = message
        elif kind == "checkpoint" and self.checkpoint_wanted != "stop":  # one checkpoint serves all, but ends the job
            self.checkpoint_wanted = message["reason"]

    def _enter(self, generation: Generation) -> None:
        self.generation = generation
        self.promised = max(self.promised, generation.number)
        self.verified, self.dispute = generation.verified, None
        if self.id in generation.joiners:
            self.position, self.must_copy = None, True
            self.goes_back = False
            self.evaluations.clear()
        elif generation.goes_back:
            # From now on a promise speaks of the snapshot, also if another generation comes before the loop is there.
            self.position = SentBack(generation.step)
            self.goes_back = True
            self.evaluations.clear()

    def _promise(self, number: int) -> None:
        self.promised = number
        step, held = -1, []
        if self.position is not None:
            step = self.position.reached
            held = [] if self.position.done else sorted(self.position.computed)
        self.send({"type": "promised", "number": number, "step": step, "held": held})

    def _beat(self) -> None:
        while True:
            self.send({"type": "heartbeat", **self.heartbeat()})
            time.sleep(HEARTBEAT_SECONDS)


def _end(reason: str | None, code: int = parent.LOST) -> NoReturn:
    """End the process at once: nothing in it is worth saving, and no thread may hold it back."""
    if reason:
        print(f"lockstep worker: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
