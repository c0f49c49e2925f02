"""WebDataset tars: members with one name and several extensions are one sample, `0001.jpg` with `0001.cls`.

The label is the number in `.cls`, or `label` or `cls` in `.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lockstep.data.layouts import MAX_LABEL, UNKNOWN, shown
from lockstep.errors import UserError

MAX_BYTES = 1 << 16
"""Of a file with a label."""
KEYS = ("label", "cls")


def is_label(name: str) -> bool:
    return name.lower().endswith((".cls", ".json"))


def key(name: str) -> str:
    """What the members of a sample have in common: the name up to the first dot after the folders."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.split(".", 1)[0]


def take(name: str, contents: bytes, labels: dict[str, int], title: str) -> None:
    """Note the label in a member; a `.json` may hold other things."""
    label = _in_json(contents) if name.lower().endswith(".json") else _in_text(contents)
    if label is None and name.lower().endswith(".json"):
        return
    if label is None or not 0 <= label <= MAX_LABEL:
        raise UserError(
            f"{title}, {shown(name)}: a number from 0 to {MAX_LABEL} is wanted there, the label; correct it"
        )
    if labels.setdefault(key(name), label) != label:
        raise UserError(f"{title}, {shown(name)}: label {label} contradicts {labels[key(name)]} beside it; correct one")


def matched(names: Sequence[str], labels: dict[str, int], title: str) -> list[int]:
    """The label of each image; if no image has one, they are all UNKNOWN."""
    if not labels:
        return [UNKNOWN] * len(names)
    seen: set[str] = set()
    found: list[int] = []
    for name in names:
        one = key(name)
        if one not in labels:
            raise UserError(f"{title}, {shown(name)} has no label: neither .cls nor .json with one lies beside it")
        if one in seen:
            raise UserError(f"{title}, {shown(name)} is a second image of its sample: leave one of them")
        seen.add(one)
        found.append(labels[one])
    return found


def _in_text(contents: bytes) -> int | None:
    text = contents.strip()
    return int(text) if len(text) <= 9 and text.isdigit() else None


def _in_json(contents: bytes) -> int | None:
    try:
        values = json.loads(contents) if len(contents) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    for one in KEYS:
        if isinstance(values, dict) and type(values.get(one)) is int:
            return int(values[one])
    return None
