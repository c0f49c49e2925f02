"""`dataset.json`: what a model must know of its data, so that a run can be used after they have gone."""

from __future__ import annotations

import dataclasses
from typing import Any

from lockstep.data.order import Samples
from lockstep.data.source import Batch, Dataset
from lockstep.errors import UserError

FORMAT_VERSION = 1


class Gone:
    """The place of a source whose size is known, and whose samples are not needed."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def fetch(self, samples: Samples) -> Batch:
        raise UserError("the samples of this run were not opened")


def to_plain(dataset: Dataset) -> dict[str, Any]:
    """Everything about a data set but its samples."""
    facts = {name: getattr(dataset, name) for name in _facts()}
    return {"version": FORMAT_VERSION, "train_size": len(dataset.train), "test_size": len(dataset.test), **facts}


def from_plain(plain: Any) -> Dataset | None:
    """What `to_plain` wrote; None if it is missing, damaged, or of a version that is not known."""
    if not isinstance(plain, dict) or plain.get("version") != FORMAT_VERSION:
        return None
    facts = {name: _frozen(plain[name]) for name in _facts() if name in plain}
    try:
        return Dataset(train=Gone(plain["train_size"]), test=Gone(plain["test_size"]), **facts)
    except (KeyError, TypeError):
        return None


def _facts() -> list[str]:
    return [field.name for field in dataclasses.fields(Dataset) if field.name not in ("train", "test")]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
