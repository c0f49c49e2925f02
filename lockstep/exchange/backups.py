"""Which late leaf is computed by another worker as well, and by whom. Pure: time comes in as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

SLACK = 1.5
"""A worker is late when it takes so many times as long as the first one that was done, for as many leaves."""


@dataclass
class Backups:
    limit: int
    """Leaves that are computed a second time, per step."""
    _owners: dict[int, int] = field(default_factory=dict)
    """Who is to compute each leaf of the step."""
    _began: float = 0.0
    _idle: list[int] = field(default_factory=list)
    """Workers with nothing to do, in the order in which they became idle."""
    _pace: float | None = None
    """Seconds per leaf of the first worker that was done."""
    _given: set[int] = field(default_factory=set)
    _late: set[int] = field(default_factory=set)
    """Workers whose leaves were not all there when the last step was done: with them nobody waits any longer."""

    def begin(self, owners: dict[int, int], now: float) -> None:
        """A new step. What is known of its workers' lateness stays."""
        self._owners, self._began, self._pace = owners, now, None
        self._idle.clear()
        self._given.clear()

    def end(self, arrived: dict[int, set[int]]) -> None:
        """The step is done; `arrived` says which leaves came from whom."""
        self._late = {owner for leaf, owner in self._owners.items() if leaf not in arrived.get(owner, ())}

    def idle(self, worker: int, now: float) -> None:
        """A worker has computed all that it was given."""
        share = sum(owner == worker for owner in self._owners.values())
        if self._pace is None and share:
            self._pace = (now - self._began) / share
        if worker not in self._idle:
            self._idle.append(worker)

    def assign(self, missing: list[int], now: float) -> list[tuple[int, int]]:
        """Late leaves and the idle workers that compute them too: (worker, leaf). Owners begin with their first leaf,
        so others begin with the last."""
        assigned = []
        for leaf in reversed(missing):
            if not self._idle or len(self._given) >= self.limit:
                break
            if leaf not in self._given and self._is_late(self._owners[leaf], now):
                self._given.add(leaf)
                assigned.append((self._idle.pop(0), leaf))
        return assigned

    def _is_late(self, owner: int, now: float) -> bool:
        if owner in self._late:
            return True
        share = sum(other == owner for other in self._owners.values())
        return self._pace is not None and now - self._began > SLACK * self._pace * share
