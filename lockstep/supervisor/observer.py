"""The evaluator beside the workers: which checkpoint it looks at, and what it has found. Nobody waits for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.evaluate import LeafResult

MAX_FAILURES = 3
"""Failures without an evaluation in between after which training goes on without an evaluator."""


@dataclass(frozen=True)
class Good:
    """A checkpoint that may be evaluated."""

    step: int
    name: str


@dataclass
class Observer:
    """It is given one checkpoint at a time, and then the newest: if it is slower than training, some are left out."""

    num_leaves: int
    current: Good | None = None
    waiting: Good | None = None
    failures: int = 0
    left_out: int = 0
    _results: dict[int, LeafResult] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        return self.current is None and self.waiting is None

    @property
    def names(self) -> set[str]:
        """Checkpoints that must not be deleted yet."""
        return {good.name for good in (self.current, self.waiting) if good is not None}

    def offer(self, good: Good) -> None:
        """There is a new checkpoint; one that still waits is not evaluated any more."""
        if self.current == good:
            return
        if self.waiting is not None and self.waiting != good:
            self.left_out += 1
        self.waiting = good

    def take(self) -> Good | None:
        """What to evaluate now, if it is free and there is something."""
        if self.current is not None or self.waiting is None:
            return None
        self.current, self.waiting = self.waiting, None
        self._results.clear()
        return self.current

    def add(self, step: int, leaf: int, result: LeafResult) -> dict[int, LeafResult] | None:
        """Take note of a leaf; all of them when it was the last one."""
        if self.current is None or step != self.current.step:
            return None  # of a checkpoint that counts no more
        self._results[leaf] = result
        if len(self._results) < self.num_leaves:
            return None
        self.current, self.failures = None, 0
        return dict(self._results)

    def fail(self) -> bool:
        """The process is gone, and what it was at waits for the next one; False if there should be none."""
        self.failures += 1
        self.waiting, self.current = self.waiting or self.current, None
        if self.failures >= MAX_FAILURES:
            self.waiting = None
            return False
        return True

    def go_back(self, step: int) -> None:
        """The run has gone back to a step: what was written after it counts no more."""
        self.current, self.waiting = (
            None if good is None or good.step > step else good for good in (self.current, self.waiting)
        )
