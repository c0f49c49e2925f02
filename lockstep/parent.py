"""A local process must not outlive the one that started it, not even if that one is killed before they have talked."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

LOST = 3
"""The exit code of a process that ends because whoever it belongs to is gone: like a death, and nobody's mistake."""

_PR_SET_PDEATHSIG = 1


def follow() -> None:
    """Ask the kernel to end this process with its parent, where the kernel can (Linux) and the engine wants it."""
    parent = os.environ.pop("LOCKSTEP_PARENT", None)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it had died before we asked
        os._exit(LOST)
