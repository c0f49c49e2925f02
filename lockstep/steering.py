"""A word to the supervisor of a running job: `lockstep stop` and `lockstep resize`. What it answers is in
`lockstep.supervisor.run`."""

from __future__ import annotations

import shlex
import socket
from typing import Any

from lockstep import metrics, rundirectory, wire
from lockstep.errors import UserError
from lockstep.rundirectory import RunDirectory

ANSWER_SECONDS = 10.0
"""How long a supervisor may take to answer."""


def command(run: str, message: dict[str, Any]) -> RunDirectory:
    """Send a command to the supervisor of a running job."""
    directory = rundirectory.existing(run)
    answer = _ask(directory.read_json("supervisor.json"), message)
    if answer is None and directory.is_locked():
        raise UserError(
            f"{directory.name} is running, but its supervisor does not answer (paused, about to begin or to end, or "
            "of another version of Lockstep?): try again, or end the process that trains it"
        )
    if answer is None and _has_finished(directory):
        raise UserError(
            f"{directory.name} is not running, since it has finished: there is nothing to {message['type']}"
        )
    if answer is None:
        raise UserError(
            f"{directory.name} is not running: continue it with `lockstep resume {shlex.quote(directory.name)}`"
        )
    if answer["type"] != "ok":
        raise UserError(str(answer.get("sentence")))
    return directory


def _has_finished(directory: RunDirectory) -> bool:
    sessions = [row for row in metrics.read(directory.metrics) if row.get("kind") in ("start", "end")]
    return bool(sessions) and sessions[-1].get("state") == "finished"


def _ask(document: Any, message: dict[str, Any]) -> wire.Message | None:
    """What the supervisor says that has written this; None if nobody is there, or somebody else, as after a crash."""
    try:
        host, _, port = document["address"].rpartition(":")
        hello = {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": document["token"]}
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(wire.encode({**hello, "command": message}))
            return wire.receive_frame(connection)
    except (TypeError, KeyError, ValueError, AttributeError, OSError, wire.BadFrame):
        return None
