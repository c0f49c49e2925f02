"""Wishes that the job may end: one may come twice, by different ways, and is still one. Pure."""

from __future__ import annotations

import signal

LAUNCHER_ECHO_SECONDS = 5.0
"""A launcher may pass on a signal that has reached the supervisor already: until then it is the same one."""
ECHO_SECONDS = 1.0
"""A scheduler's signal may come twice: to every process of a job, and once more from the script that hands it on."""


class Wishes:
    def __init__(self, has_launcher: bool) -> None:
        self._has_launcher = has_launcher
        self._came: dict[str, float] = {}
        """When each was last heard, by what asked."""
        self._taken: float | None = None
        """When one was last taken for a new one."""

    def is_new(self, reason: str, now: float) -> bool:
        """Whether this is more than an echo of one that came before."""
        before, self._came[reason] = self._came.get(reason), now
        if self._has_launcher:
            is_echo = self._taken is not None and now < self._taken + LAUNCHER_ECHO_SECONDS
        else:  # whoever presses Ctrl-C twice means it
            is_echo = reason != signal.SIGINT.name and before is not None and now < before + ECHO_SECONDS
        if not is_echo:
            self._taken = now
        return not is_echo
