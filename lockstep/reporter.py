"""What a worker says about its progress: where it is (heartbeats), and rows of metrics (the first member only)."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lockstep.config import Recipe
from lockstep.goal import metric_name
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.spans import NAMES
from lockstep.step import Step

KEPT_ROWS = 1000
"""Rows that a member keeps: the first one may not have sent them, and checkpoints carry those since the one before."""
MAX_EVENTS = 2000
"""Of a profile, in one message."""
DIGEST_EVERY = 100
"""Steps between two digests in the metrics."""


class Reporter:
    """Every worker counts, since all see the same reduced numbers; only the first one sends."""

    def __init__(
        self, recipe: Recipe, replica: Replica, membership: Membership, waits: Callable[[], bool] = lambda: False
    ) -> None:
        """`waits` says whether samples are on their way from elsewhere, which may take longer than patience lasts."""
        self._recipe = recipe
        self._replica = replica
        self._membership = membership
        self._waits = waits
        self._step, self._leaf = 0, None  # type: int, int | None
        self._steps = 0
        """Steps since the last row that this process has seen; `replica.tally` may know of more."""
        self._since = time.perf_counter()
        self._rows: deque[dict[str, Any]] = deque(maxlen=KEPT_ROWS)
        """The last ones, sent or not."""
        self._sent = -1
        """The step of the last row that this process has sent."""
        self._leaf_seconds: deque[float] = deque(maxlen=9)
        self._leaf_since: float | None = None
        self._totals = dict.fromkeys(NAMES, 0.0)
        self._traffic = replace(replica.traffic)
        self._step_seconds: deque[float] = deque(maxlen=51)
        self._step_since, self._generation = time.perf_counter(), 0

    def at(self, step: int, leaf: int | None) -> None:
        """Where the loop is now; how long the last leaf took is what patience is measured in."""
        now = time.monotonic()
        if self._leaf_since is not None:
            self._leaf_seconds.append(now - self._leaf_since)
        self._leaf_since = now if leaf is not None else None
        self._step, self._leaf = step, leaf

    def step(self) -> int:
        return self._step

    def phase(self) -> str:
        return self._replica.spans.current

    def place(self) -> str:
        leaf = "" if self._leaf is None else f", leaf {self._leaf}"
        return f"step {self._step}{leaf}, {self._replica.spans.current}"

    def heartbeat(self) -> dict[str, Any]:
        seconds = list(self._leaf_seconds)
        return {
            "step": self._step,
            "leaf": self._leaf,
            "phase": "waiting" if self._waits() else self._replica.spans.current,
            "leaf_seconds": statistics.median(seconds) if seconds else None,
        }

    def resend(self) -> None:
        """What a new first member does: the old one may have died before it sent the last row, or have been so slow
        that it never saw some steps. The supervisor drops what it has already."""
        for row in self.rows_since(self._sent):
            self._send(row)

    def _send(self, row: dict[str, Any]) -> None:
        self._membership.send({"type": "metrics", "row": row})
        self._sent = row["step"]

    def begin(self) -> None:
        """The first step, or the first after going back to an earlier state, starts now."""
        self.restart()
        self._rows.clear()
        self._sent = -1

    def restart(self) -> None:
        """The steps that this process has seen are counted from here."""
        self._since, self._steps = time.perf_counter(), 0

    def rows_since(self, step: int) -> list[dict[str, Any]]:
        """Rows of later steps, for a checkpoint: the supervisor may be killed before it has written them."""
        return [row for row in self._rows if row["step"] > step]

    def finish(self) -> dict[str, float]:
        """Seconds per span over the whole session."""
        self._take_spans()
        return self._totals

    def _take_spans(self) -> dict[str, float]:
        self._send_events()
        spans = self._replica.spans.take()
        for name, value in spans.items():
            self._totals[name] += value
        return spans

    def _send_events(self) -> None:
        """Where a profile is wanted: what every worker did when."""
        events = self._replica.spans.take_events()
        for first in range(0, len(events), MAX_EVENTS):
            self._membership.send({"type": "trace", "events": events[first : first + MAX_EVENTS]})

    def _take_traffic(self) -> dict[str, int]:
        """What this worker has sent and received since the last row."""
        now, before = self._replica.traffic, self._traffic
        self._traffic = replace(now)
        row = {"sent_bytes": now.sent - before.sent, "received_bytes": now.received - before.received}
        dropped = now.dropped_leaves - before.dropped_leaves
        return {**row, **({"dropped_leaves": dropped} if dropped else {})}

    def count(self, step: Step) -> None:
        """Take note of a step that has been applied; all steps of a round have its means."""
        if not step.is_counted:
            return
        self._replica.tally += [step.reduced.counts.tolist()] * len(step.steps)
        self._steps += len(step.steps)
        seconds, generation = time.perf_counter() - self._step_since, self._membership.current
        if generation.number == self._generation:
            self._step_seconds.append(seconds)
        elif self._step_seconds and self._membership.is_first:
            lost = round(max(0.0, seconds - statistics.median(self._step_seconds)), 4)
            delay = {"type": "delay", "number": generation.number, "step": step.index, "seconds": lost}
            self._membership.send(delay)

    def begin_step(self) -> None:
        """The time of a step is counted from here."""
        self._step_since, self._generation = time.perf_counter(), self._membership.current.number

    def report(self, step: Step, is_first: bool, at_end: bool) -> None:
        """Send a row when one is due: means over the steps since the last row, in the order of steps."""
        done, due = step.index, at_end or step.is_due(self._recipe.log_every) or step.is_due(DIGEST_EVERY)
        if not self._steps or not due:
            return
        with self._replica.spans("report"):
            now, tally = time.perf_counter(), self._replica.tally
            spans = self._take_spans()
            seconds = now - self._since - spans["evaluate"]  # the speed of training, which an evaluation interrupts
            row: dict[str, Any] = {
                "step": done,
                **figures(tally, self._recipe),
                "lr": self._replica.learning_rate(done - 1),
                "steps_per_second": self._steps / seconds,
                "images_per_second": self._steps * self._recipe.global_batch / seconds,
                "spans": {name: round(value, 6) for name, value in spans.items() if value},
            }
            row |= self._take_traffic()
            if step.is_due(DIGEST_EVERY):
                row["digest"] = self._replica.digest()
            self._rows.append(row)
            if is_first:
                self._send(row)
            self._replica.tally, self._steps, self._since = [], 0, now


def figures(tally: list[list[float]], recipe: Recipe) -> dict[str, Any]:
    """Loss, hits and metric as means over the examples of some steps; the counts of a step are means over its leaves.

    A number of hits below zero says that there are no classes, or that a script does not count it.
    """

    def per_example(column: int) -> float:
        return sum(counts[column] * recipe.leaves for counts in tally) / (len(tally) * recipe.global_batch)

    found: dict[str, Any] = {"loss": sum((counts[0] for counts in tally), 0.0) / len(tally)}
    for name, column in (("top1", 1), ("top5", 2)):
        if min(counts[column] for counts in tally) >= 0:
            found[name] = per_example(column)
    if (metric := metric_name(recipe)) is not None:
        found |= {metric: per_example(3), "metric": metric}
    return found
