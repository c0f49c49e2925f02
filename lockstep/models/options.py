"""What the options of a model may be: checks for the table in `lockstep.models`, which needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.errors import UserError, nearest


def _nothing(value: Any) -> str:
    return ""


@dataclass(frozen=True)
class Check:
    """What a value must be, in words that follow "must be", and as a test."""

    expected: str
    holds: Callable[[Any], bool]
    hint: Callable[[Any], str] = _nothing
    """What to say after the wrong value."""

    def apply(self, what: str, value: Any) -> None:
        if not self.holds(value):
            raise UserError(f"{what} must be {self.expected}, not {value!r}{self.hint(value)}")


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return (is_whole(value) or isinstance(value, float)) and abs(value) < math.inf


FLAG = Check("true or false", lambda value: isinstance(value, bool))
TEXT = Check("text", lambda value: isinstance(value, str))
NUMBER = Check("a number", is_number)
WHOLE = Check("a whole number", is_whole)
ANYTHING = Check("anything", lambda value: True)


def at_least(least: int) -> Check:
    return Check(f"a whole number of at least {least}", lambda value: is_whole(value) and value >= least)


def between(low: float, high: float) -> Check:
    return Check(f"a number between {low:g} and {high:g}", lambda value: is_number(value) and low <= value <= high)


def above(low: float) -> Check:
    return Check(f"a number above {low:g}", lambda value: is_number(value) and value > low)


def one_of(*values: int | str) -> Check:
    *others, last = map(repr, values)
    names = [value for value in values if isinstance(value, str)]

    def closest(value: Any) -> str:
        close = nearest(str(value), names)
        return f": did you mean {close!r}?" if close is not None else ""

    # 1.0 and True are equal to 1, but would be stored as what they are.
    return Check(
        f"{', '.join(others)} or {last}",
        lambda value: any(type(value) is type(known) and value == known for known in values),
        closest,
    )


def layers(per_block: int, others: int) -> Check:
    """A number of layers such as 6n+2."""
    least = per_block + others

    def neighbours(value: Any) -> str:
        lower = max(least, (value - others) // per_block * per_block + others) if is_whole(value) else least
        return f": the nearest are {lower} and {lower + per_block}"

    return Check(
        f"{per_block}n+{others} layers",
        lambda value: is_whole(value) and value >= least and (value - others) % per_block == 0,
        neighbours,
    )


def like(default: Any) -> Check:
    """For an option without a check of its own: of the kind of its default."""
    kinds = {bool: FLAG, int: WHOLE, float: NUMBER, str: TEXT}
    return kinds.get(type(default), ANYTHING)
