"""Where the time of a step goes: seconds by name, added up as they pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = ("data", "forward", "backward", "exchange", "optimizer", "evaluate", "verify", "checkpoint", "report")


Event = tuple[str, float, float]
"""A span, when it began, in seconds since 1970, and how long it took."""


class Spans:
    """Accumulates seconds per span. On a GPU a span ends when its kernels are queued, not when they are done."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(NAMES, 0.0)
        self.current = "between"
        """The span that is open now, for heartbeats and for naming the place of an error."""
        self.on_enter: Callable[[str], None] | None = None
        """Called with the name of every span that begins; tests inject failures there."""
        self.events: list[Event] | None = None
        """Every span by itself, where a profile is wanted."""
        self._since_1970 = time.time() - time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = self.current
        self.current = name
        if self.on_enter is not None:
            self.on_enter(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.seconds[name] += seconds
            if self.events is not None:
                self.events.append((name, start + self._since_1970, seconds))
            self.current = before

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        seconds, self.seconds = self.seconds, dict.fromkeys(NAMES, 0.0)
        return seconds

    def take_events(self) -> list[Event]:
        """The spans since the last call, where they are noted."""
        events, self.events = self.events or [], None if self.events is None else []
        return events
