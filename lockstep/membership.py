"""A worker's side of the control connection: which generation it is in, and what the supervisor has said.

One thread reads, one sends heartbeats; the training loop waits on `changed` and never on a socket.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from lockstep import wire
from lockstep.generation import Generation, solo
from lockstep.wire import Message

HEARTBEAT_SECONDS = 1.0


class Membership:
    """What a training loop knows of the job. `connection` is None for a process that trains alone."""

    def __init__(self, id_: int, connection: socket.socket | None) -> None:
        self.id = id_
        self.changed = threading.Condition()
        self.generation: Generation | None = None
        self.evaluations: dict[int, Message] = {}
        """Finished evaluations by step."""
        self.checkpoint_wanted: str | None = None
        """Why the supervisor wants a checkpoint now, if it does."""
        self._connection = connection
        self._send_lock = threading.Lock()
        self.heartbeat: Callable[[], Message] = lambda: {"phase": "setup"}
        """What a heartbeat says; the loop sets it when there is something to say."""

    @staticmethod
    def alone(num_leaves: int) -> Membership:
        membership = Membership(0, None)
        membership.generation = solo(num_leaves)
        return membership

    def listen(self) -> None:
        """Start to read and to send heartbeats."""
        threading.Thread(target=self._read, name="control", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    @property
    def current(self) -> Generation:
        assert self.generation is not None, "the first generation has not been announced"
        return self.generation

    @property
    def rank(self) -> int:
        return self.current.rank(self.id)

    @property
    def is_first(self) -> bool:
        """The first member reports and writes checkpoints."""
        return self.current.members[0].id == self.id

    def leaves(self) -> list[int]:
        """My leaves of a step."""
        return self.current.leaves(self.rank)

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
            if message is None:
                _end("the supervisor is gone")
            elif message["type"] == "shutdown":
                _end(None)
            else:
                with self.changed:
                    self._handle(message)
                    self.changed.notify_all()

    def _handle(self, message: Message) -> None:
        kind = message["type"]
        if kind == "generation":
            self.generation = Generation.from_plain(message["generation"])
        elif kind == "evaluated":
            self.evaluations[message["step"]] = message
        elif kind == "checkpoint":
            self.checkpoint_wanted = message["reason"]

    def _beat(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            self.send({"type": "heartbeat", **self.heartbeat()})


def _end(reason: str | None) -> NoReturn:
    """End the process at once: nothing in it is worth saving, and no thread may hold it back."""
    if reason:
        print(f"lockstep worker: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if reason is None else 3)
