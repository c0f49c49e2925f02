"""A process that a launcher started, and that is not the first one: it becomes a worker or a server of rank 0's job.

Rank 0's side is `engines/env.py`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from lockstep import device, environment, parent, wire
from lockstep.engines import meeting
from lockstep.environment import Place
from lockstep.errors import UserError
from lockstep.line import Line


def take_part(engine: str | None) -> None:
    """Under `env` every rank runs the same command: this returns in the first one, and in no other."""
    if engine == "env" and (place := environment.place(os.environ)).rank > 0:
        _become(place)


def _become(place: Place) -> NoReturn:
    connection = meeting.find(place)
    message = _part(connection, place)
    variables: dict[str, str] = message["environment"]
    if "CUDA_VISIBLE_DEVICES" in variables:  # rank 0 knows only the GPUs of its own host
        variables |= device.one_gpu(place.local_rank)
    _redirect(Path(message["log"]), variables)
    if place.tells_all:
        parent.ignore_the_launcher()
    os.set_inheritable(connection.fileno(), True)
    variables[parent.LEASH] = str(connection.detach())
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *message["arguments"]], {**os.environ, **variables})


def _part(connection: socket.socket, place: Place) -> wire.Message:
    """What rank 0 says that this process is. Rank 0 waits for the others first."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    message = wire.receive_frame(connection)
    if message is None:
        raise UserError(f"rank 0 has ended before rank {place.rank} had something to do: its output says why")
    if message["type"] == "refused":
        raise UserError(str(message["sentence"]))
    if message["type"] == "end":
        sys.exit(0)
    return message


def _redirect(log: Path, variables: dict[str, str]) -> None:
    """Output goes to the run's directory where this host can see it, and stays with the launcher elsewhere."""
    line = Line(variables["LOCKSTEP_CONTROL"], variables["LOCKSTEP_TOKEN"], int(variables["LOCKSTEP_ID"]))
    if line.sees(str(log.parent.parent)):
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for output in (1, 2):
            os.dup2(descriptor, output)
        os.close(descriptor)
