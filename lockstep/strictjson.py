"""JSON that every reader takes. Python's own has the words NaN and Infinity, over which `JSON.parse` and many others
stumble: here whatever is no finite number is null. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(value: Any, **options: Any) -> str:
    """As `json.dumps`."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def number(figure: Any) -> Any:
    """A figure that was read: one that is null was no finite number, whichever."""
    return math.nan if figure is None else figure


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
