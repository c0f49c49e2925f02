"""What a row of `metrics.jsonl` must have, so that its readers need not look: files are edited and merged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Kind = Callable[[Any], bool]

LAST_TIME = 1e11
"""In seconds since 1970; beyond that no calendar goes."""


def _whole(value: Any) -> bool:
    return isinstance(value, int)


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _time(value: Any) -> bool:
    return _number(value) and 0 <= value < LAST_TIME


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


STEP: dict[str, Kind] = {"step": _whole, "time": _time}
NEEDED: dict[str, dict[str, Kind]] = {
    "start": {"step": _whole},
    "rollback": {"step": _whole},
    "train": STEP,
    "eval": STEP,
    "generation": STEP,
    "checkpoint": {**STEP, "digest": _text},
    "death": {**STEP, "worker": _whole, "how": _text},
    "recovery": {"seconds": _number},
    "spans": {"worker": _whole, "seconds": _numbers},
    "broken": {"image": _text},
    "end": {"state": _text},
}
"""By the kind of row. What other kinds have is only counted."""
MAY_HAVE: dict[str, Kind] = {
    **STEP,
    **dict.fromkeys(("loss", "lr", "top1", "top5", "steps_per_second", "images_per_second", "sent_bytes"), _number),
    **dict.fromkeys(("workers", "recomputed_leaves", "num_steps"), _whole),
    "metric": _text,
    "joined": _list,
}
"""What must be of its kind where it is there, in rows of any kind."""


def is_whole(row: Row) -> bool:
    """Whether it has what its readers rely on."""
    if not _text(row.get("kind")):
        return False
    needed = NEEDED.get(row["kind"], {})
    own = row.get("metric")
    figures = [value for name, value in row.items() if name.startswith("best_") or (_text(own) and name == own)]
    return (
        all(name in row and is_fit(row[name]) for name, is_fit in needed.items())
        and all(is_fit(row[name]) for name, is_fit in MAY_HAVE.items() if name in row)
        and all(map(_number, figures))
    )
