"""What a check of the doctor returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Finding:
    level: Level
    """"warning": training works, but slowly or with less than is there; "problem": it fails, or soon will."""
    name: str
    """What was looked at."""
    what: str
    """What was found."""
    advice: str = ""
    """What to do about it; empty if nothing is to be done."""
