"""How every process of a job begins: it ends with its parent, leaves Ctrl-C to the supervisor, and connects to it."""

from __future__ import annotations

import faulthandler
import os
import signal

from lockstep import parent
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.wire import Message


def enlist() -> tuple[Line, Membership, Message]:
    """The line to the supervisor, the membership, and what the supervisor said in welcome."""
    parent.follow()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    id_ = int(os.environ["LOCKSTEP_ID"])
    line = Line(os.environ["LOCKSTEP_CONTROL"], os.environ.pop("LOCKSTEP_TOKEN"), id_)
    connection, welcome = line.open()
    return line, Membership(id_, connection), welcome
