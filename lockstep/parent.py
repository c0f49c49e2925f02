"""A local process must not outlive the one that started it, not even if that one is killed before they have talked;
and where a launcher started both, it must not fail before the supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

LOST = 3
"""The exit code of a process that ends because whoever it belongs to is gone: like a death, and nobody's mistake."""
LEASH = "LOCKSTEP_LEASH"
"""The number of an open connection that ends with the supervisor's process; only under a launcher."""
DEAF = "LOCKSTEP_DEAF"
"""Set where a launcher tells every process to end: the supervisor alone decides what that means."""

_PR_SET_PDEATHSIG = 1


def follow() -> None:
    """Ask the kernel to end this process with its parent, where the kernel can (Linux) and the engine wants it."""
    if os.environ.pop(DEAF, None):
        ignore_the_launcher()
    parent = os.environ.pop("LOCKSTEP_PARENT", None)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it had died before we asked
        os._exit(LOST)


def ignore_the_launcher() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def part(failed: bool) -> int:
    """The exit code of a process that was told to end. A launcher kills everyone when one has failed: so where there
    is one, this waits until the supervisor has said what went wrong, and has ended."""
    leash = os.environ.get(LEASH)
    if leash is None or not failed:
        return 0
    with contextlib.suppress(OSError):
        while os.read(int(leash), 1 << 10):
            pass
    return 1
