"""What a run's files say of its course: figures against steps, epochs and the time that was spent on it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from lockstep import metrics


@dataclass(frozen=True)
class Point:
    """A figure, and when it was reached."""

    step: int
    seconds: float | None
    """Since the run began; what lies between two sessions of it does not count. None if nobody knows when."""
    value: float


@dataclass(frozen=True)
class Happening:
    """A death or a join."""

    step: int
    seconds: float
    what: str

    @property
    def is_join(self) -> bool:
        return self.what.endswith(" joined")


@dataclass(frozen=True)
class Course:
    """Everything that can be drawn."""

    loss: tuple[Point, ...]
    """Of training."""
    top1: tuple[Point, ...]
    """Of evaluations; where there are no classes, the figure that takes its place."""
    speed: tuple[Point, ...]
    """Images per second."""
    happenings: tuple[Happening, ...]
    seconds: float
    """Of all sessions."""

    @property
    def images_per_second(self) -> float | None:
        return statistics.median(point.value for point in self.speed) if self.speed else None

    def seconds_to(self, top1: float) -> float | None:
        """When an evaluation first showed as much; None if none did of which it is known when."""
        return next((one.seconds for one in self.top1 if one.value >= top1 and one.seconds is not None), None)


def course(rows: list[metrics.Row], followed: Iterable[metrics.Row] = (), figure: str = "top1") -> Course:
    """From the rows of `metrics.jsonl`, and those of an evaluator elsewhere; `figure` says how good they found it."""
    clock = _Clock(rows)
    evaluations = sorted([*_of("eval", rows), *_timed(followed, rows)], key=lambda row: int(row["step"]))
    return Course(
        loss=_points(_of("train", rows), "loss", clock),
        top1=_points(evaluations, figure, clock),
        speed=_points(_of("train", rows), "images_per_second", clock),
        happenings=tuple(_happenings(rows, clock)),
        seconds=next((clock.seconds(row["time"]) for row in reversed(rows) if "time" in row), 0.0),
    )


class _Clock:
    """Seconds that a run had been at work at some time of day."""

    def __init__(self, rows: list[metrics.Row]) -> None:
        self._sessions: list[tuple[float, float]] = []
        """When each began, and what had been spent before."""
        spent, began, last = 0.0, None, 0.0
        for row in rows:
            time = float(row.get("time", last))
            if row.get("kind") == "start":
                spent += 0.0 if began is None else last - began
                began = time
                self._sessions.append((time, spent))
            last = time

    def seconds(self, time: float) -> float:
        began, spent = next((one for one in reversed(self._sessions) if one[0] <= time), (time, 0.0))
        return spent + time - began


def _of(kind: str, rows: Iterable[metrics.Row]) -> list[metrics.Row]:
    return [row for row in rows if row.get("kind") == kind]


def _timed(followed: Iterable[metrics.Row], rows: list[metrics.Row]) -> list[metrics.Row]:
    """Evaluations from elsewhere, each with the time of its checkpoint: whoever follows a run may come days later."""
    written = {int(row["step"]): row["time"] for row in reversed(_of("checkpoint", rows))}
    return [{**row, "time": written.get(int(row["step"]))} for row in _of("eval", followed)]


def _points(rows: list[metrics.Row], key: str, clock: _Clock) -> tuple[Point, ...]:
    def seconds(row: metrics.Row) -> float | None:
        return None if row["time"] is None else clock.seconds(row["time"])

    return tuple(Point(int(row["step"]), seconds(row), float(row[key])) for row in rows if key in row)


def _happenings(rows: list[metrics.Row], clock: _Clock) -> Iterable[Happening]:
    begins = False
    """Whether a session has yet to form its first generation, in which nobody joins anybody."""
    for row in rows:
        if row.get("kind") == "start":
            begins = True
        elif row.get("kind") == "death":
            what = f"{row.get('role', 'worker')} {row['worker']} {row['how']}"
            yield Happening(int(row["step"]), clock.seconds(row["time"]), what)
        elif row.get("kind") == "generation":
            if row.get("joined") and not begins:
                joined = ", ".join(str(one) for one in row["joined"])
                yield Happening(int(row["step"]), clock.seconds(row["time"]), f"worker {joined} joined")
            begins = False
