"""A worker's line to the supervisor: the control connection, and checkpoints for whoever cannot see their directory.

A checkpoint travels over a connection of its own: for every file a frame with its name and size, then its bytes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep import checkpoint, wire
from lockstep.errors import UserError
from lockstep.wire import Message

CONNECT_SECONDS = 30.0


@dataclass(frozen=True)
class Line:
    address: str
    token: str = field(repr=False)
    id: int

    def open(self) -> tuple[socket.socket, Message]:
        """The control connection, after the handshake."""
        connection = self._connect({"pid": os.getpid()})
        connection.settimeout(None)  # the supervisor may have a large checkpoint to verify first
        welcome = wire.receive_frame(connection)
        if welcome is None:
            sys.exit("lockstep worker: the supervisor refused the connection")
        return connection, welcome

    def sees(self, run_directory: str) -> bool:
        """Whether what lies under this name here is the directory that the supervisor means."""
        try:
            document: Any = json.loads((Path(run_directory) / "supervisor.json").read_text())
            return bool(document["token"] == self.token)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    @contextmanager
    def checkpoint(self, path: Path) -> Iterator[Path]:
        """A checkpoint by the supervisor's name for it: where it lies, or a copy for as long as it is needed."""
        if path.is_dir():
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="lockstep-") as directory:
            self._fetch(Path(directory), path.name)
            yield Path(directory)

    def _fetch(self, directory: Path, name: str) -> None:
        with self._connect({"fetch": name}) as connection:
            while (frame := wire.receive_frame(connection)) is not None and frame["type"] == "file":
                wire.receive_file(connection, directory / Path(frame["name"]).name, frame["bytes"])
        if frame is None or frame["type"] != "end":
            raise UserError(f"the supervisor could not send the checkpoint {name}: look whether it is still there")

    def store(self, path: Path) -> Message:
        """Hand a checkpoint to the supervisor, which puts it where it belongs; its answer."""
        with self._connect({"store": path.name}) as connection:
            for name in checkpoint.files_of(path):
                frame = {"type": "file", "name": name, "bytes": (path / name).stat().st_size}
                connection.sendall(wire.encode(frame))
                with (path / name).open("rb") as file:
                    connection.sendfile(file)
            connection.sendall(wire.encode({"type": "end"}))
            connection.settimeout(None)
            answer = wire.receive_frame(connection)
        return answer or {"type": "checkpoint_failed", "error": "the connection to the supervisor broke"}

    def _connect(self, rest: Message) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
        greeting = {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": self.token, "id": self.id, **rest}
        connection.sendall(wire.encode(greeting))
        return connection
