"""Names written with braces, as shells expand them: `train-{00000..00012}.tar`, `{train,more}.tar`. A pure function."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from lockstep.errors import UserError

MAX_NAMES = 1_000_000
"""More are a slip of the finger."""

BRACES = re.compile(r"\{([^{}]*)\}")
COUNT = re.compile(r"(\d{1,18})\.\.(\d{1,18})")


def expand(text: str) -> list[str]:
    """All names in the order in which they are written; a text without braces is one name.

    Braces with neither a comma nor two numbers stay as they are.
    """
    pieces = BRACES.split(text)  # what is outside of braces and inside, in turn
    names = prod(_choices(piece) for piece in pieces[1::2])
    if names > MAX_NAMES:
        raise UserError(f"{text} stands for {names:,} names, and at most {MAX_NAMES:,} are taken: check its numbers")
    parts = [_inside(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in product(*parts)]


def _choices(inside: str) -> int:
    count = COUNT.fullmatch(inside)
    return abs(int(count[2]) - int(count[1])) + 1 if count else inside.count(",") + 1


def _inside(text: str) -> list[str]:
    """Numbers are as wide as the wider of the two ends if one of these begins with a zero."""
    count = COUNT.fullmatch(text)
    if count is None:
        return text.split(",") if "," in text else ["{" + text + "}"]
    first, last = int(count[1]), int(count[2])
    padded = any(len(end) > 1 and end.startswith("0") for end in count.groups())
    width = max(len(end) for end in count.groups()) if padded else 0
    way = 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + way, way)]
