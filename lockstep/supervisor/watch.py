"""Who is stuck, and who cannot be reached: heartbeats, progress, and what workers report of each other. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

PATIENCE_LEAVES = 20
"""A worker may take so many times the median leaf before it counts as stuck."""
CONNECT_SECONDS = 300.0
"""How long a process that was started may take to connect: imports from a network file system are slow."""
REPORT_GRACE_SECONDS = 3.0
"""How long after a lost connection a death may explain it, before someone is expelled for it."""
PAUSE_SECONDS = 2.0
"""The clock is looked at several times a second; a longer gap means that the supervisor stood still."""
COMPUTING = ("data", "forward", "backward", "optimizer")
"""Spans in which a worker waits for nobody, so that standing still in one means being stuck."""
COMPUTING_LEAVES = ("evaluate", "verify")
"""Spans in which it waits for nobody as long as it is at a leaf."""


@dataclass
class Seen:
    """What was last heard of a worker."""

    since: float
    """When it was first looked at."""
    heard: float | None = None
    moved: float = 0.0
    place: tuple[int, int | None, str] = (-1, None, "setup")
    leaf_seconds: float | None = None

    @property
    def is_computing(self) -> bool:
        _, leaf, phase = self.place
        return phase in COMPUTING or (phase in COMPUTING_LEAVES and leaf is not None)


@dataclass
class Watch:
    """Seconds without a heartbeat or progress after which a worker is expelled; more if leaves take long."""

    patience: float
    _looked: float | None = None
    _seen: dict[int, Seen] = field(default_factory=dict)
    _reports: dict[int, set[int]] = field(default_factory=dict)
    _reported_at: float | None = None

    def heard(self, worker: int, place: tuple[int, int | None, str], leaf_seconds: float | None, now: float) -> None:
        seen = self._seen.setdefault(worker, Seen(now))
        seen.heard, seen.leaf_seconds = now, leaf_seconds
        if place != seen.place:
            seen.place, seen.moved = place, now

    def forget(self, worker: int) -> None:
        self._seen.pop(worker, None)

    def stuck(self, workers: list[int], now: float) -> dict[int, str]:
        """The workers that are to be expelled, and why."""
        self._allow_for_own_pause(now)
        known = [seen.leaf_seconds for seen in self._seen.values() if seen.leaf_seconds is not None]
        limit = max(self.patience, PATIENCE_LEAVES * statistics.median(known)) if known else self.patience
        found = {}
        for id_ in workers:
            seen = self._seen.setdefault(id_, Seen(now))
            if seen.heard is None:
                if now - seen.since > CONNECT_SECONDS:
                    found[id_] = f"did not connect within {CONNECT_SECONDS:.0f} s"
            elif now - seen.heard > limit:
                found[id_] = f"sent no heartbeat for {now - seen.heard:.0f} s"
            elif seen.leaf_seconds is not None and seen.is_computing and now - seen.moved > limit:
                found[id_] = f"made no progress for {now - seen.moved:.0f} s"
        return found

    def _allow_for_own_pause(self, now: float) -> None:
        """If the supervisor itself stood still (Ctrl-Z, a debugger), nobody is to blame for that time."""
        pause = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if pause > PAUSE_SECONDS:
            for seen in self._seen.values():
                seen.since += pause
                seen.moved += pause
                seen.heard = None if seen.heard is None else seen.heard + pause

    def report(self, worker: int, peer: int | None, now: float) -> None:
        """A worker could not reach a peer, or does not know which."""
        self._reports.setdefault(worker, set()).update([] if peer is None else [peer])
        if self._reported_at is None:
            self._reported_at = now

    def clear_reports(self) -> None:
        """A new generation is on its way: what was said of the old one is settled."""
        self._reports.clear()
        self._reported_at = None

    def has_unexplained_reports(self, now: float) -> bool:
        """Whether members cannot reach each other, and no death has explained it."""
        return self._reported_at is not None and now - self._reported_at > REPORT_GRACE_SECONDS

    def accusers(self, peer: int) -> set[int]:
        """Who could not reach it."""
        return {worker for worker, peers in self._reports.items() if peer in peers}

    def most_reported(self, members: list[int]) -> int | None:
        """The one to blame: whoever is reported most, on a tie the newest; None if nobody is named."""
        counts = {id_: sum(id_ in peers for peers in self._reports.values()) for id_ in members}
        worst = max(counts, key=lambda id_: (counts[id_], id_), default=None)
        return worst if worst is not None and counts[worst] > 0 else None
