"""`metrics.jsonl`: one JSON object per line, written by the supervisor alone and readable while it grows.

The first line of every session says `{"kind": "start", "version": 1, "step": s}`: rows of an earlier session beyond
step s are those of steps that were done again, and `read` leaves them out. A row of kind `rollback` says the same when
a session goes back to a verified state.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
KEPT = ("start", "generation", "death", "resize", "recovery", "corruption", "mixed", "refused")
"""Rows of what has happened, which stays true when steps are done again."""

Row = dict[str, Any]


class MetricsFile:
    """Appends rows; each is one write, so that a reader never sees half of one but at the very end."""

    def __init__(self, path: Path, step: int) -> None:
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = path.open("a", buffering=1)
        if torn:
            self._file.write("\n")
        self.write({"kind": "start", "version": FORMAT_VERSION, "step": step})

    def write(self, row: Row) -> None:
        self._file.write(json.dumps({**row, "time": round(time.time(), 3)}) + "\n")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[Row]:
    """The rows of a run, in order, without those that were done again and without a torn line."""
    rows: list[Row] = []
    if not path.exists():
        return rows
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        if row.get("kind") in ("start", "rollback"):
            rows = [old for old in rows if old.get("kind") in KEPT or old.get("step", 0) <= row["step"]]
        rows.append(row)
    return rows


def scalars(row: Row) -> dict[str, float]:
    """The TensorBoard tags of a row."""
    tags = {
        "train": {
            "train/loss": "loss",
            "train/lr": "lr",
            "train/top1": "top1",
            "speed/images_per_second": "images_per_second",
        },
        "eval": {"eval/top1": "top1", "eval/top5": "top5", "eval/loss": "loss", "eval/best_top1": "best_top1"},
    }
    return {tag: row[key] for tag, key in tags.get(row["kind"], {}).items() if key in row}
