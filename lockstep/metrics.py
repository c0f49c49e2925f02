"""`metrics.jsonl`: one JSON object per line, written by the supervisor alone and readable while it grows.

The first line of every session says `{"kind": "start", "version": 1, "step": s, "num_steps": n}`: rows of an earlier
session beyond step s are those of steps that were done again, and `read` leaves them out. A row of kind `rollback` says
the same when a session goes back to a verified state.

A line that is no row, being torn, or lacks what a row of its kind has (`lockstep.rows`), is passed over.

A figure that is no finite number is null in the file, which any reader of JSON takes, and NaN in a row that was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from lockstep import rows, strictjson
from lockstep.goal import best_in, scores

FORMAT_VERSION = 1
KEPT = (
    "start",
    "generation",
    "death",
    "resize",
    "recovery",
    "corruption",
    "mixed",
    "refused",
    "lost_updates",
    "broken",
)
"""Rows of what has happened, which stays true when steps are done again."""

FIGURES = ("train", "eval")
"""Rows of what loggers are told."""

Row = rows.Row


def now() -> float:
    """Seconds since 1970, as rows have them."""
    return round(time.time(), 3)


class MetricsFile:
    """Appends rows; each is one write, so that a reader never sees half of one but at the very end."""

    def __init__(self, path: Path, step: int, num_steps: int | None = None) -> None:
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = path.open("a", buffering=1)
        if torn:
            self._file.write("\n")
        length = {} if num_steps is None else {"num_steps": num_steps}
        self.write({"kind": "start", "version": FORMAT_VERSION, "step": step, **length})

    def write(self, row: Row) -> None:
        self._file.write(strictjson.dumps({**row, "time": row.get("time", now())}) + "\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> list[Row]:
    """The rows of a run, in order, without those that were done again and without what is no row."""
    before, since = _split(path)
    return before + since


def read_before(path: Path) -> list[Row]:
    """What the run goes on from: as `read`, but only up to the newest start, resume or going-back."""
    return _split(path)[0]


def _split(path: Path) -> tuple[list[Row], list[Row]]:
    """The rows that count before the newest row of kind `start` or `rollback`, and those from it on."""
    before: list[Row] = []
    since: list[Row] = []
    for row in _lines(path):
        if row.get("kind") in ("start", "rollback"):
            old = before + since
            before = [one for one in old if one.get("kind") in KEPT or one.get("step", 0) <= row["step"]]
            since = []
        since.append(row)
    return before, since


def _lines(path: Path) -> Iterator[Row]:
    """Every row that was ever written, but for those that are torn or lack something."""
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            row = _with_numbers(row) if row.get("kind") in FIGURES else row
            if rows.is_whole(row):
                yield row


def _with_numbers(row: Row) -> Row:
    """Nothing else is null in a row of figures."""
    return {name: strictjson.number(value) for name, value in row.items()}


def scalars(row: Row) -> dict[str, float]:
    """The figures of a row under the names that loggers show: TensorBoard's tags."""
    tags = {
        "train": {
            "train/loss": "loss",
            "train/lr": "lr",
            "speed/steps_per_second": "steps_per_second",
            "speed/images_per_second": "images_per_second",
        },
        "eval": {"eval/loss": "loss"},
    }
    found = {tag: row[key] for tag, key in tags.get(row["kind"], {}).items() if key in row}
    best = best_in(row)
    if best is not None:
        found[f"eval/best_{best[0]}"] = best[1]
    return found | {f"{row['kind']}/{name}": value for name, value in scores(row).items()}
