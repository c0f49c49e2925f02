"""The errors that end a run with a sentence instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MANY_NAMES = 16
"""A longer list is not shown to someone who only mistyped."""


class UserError(ValueError):
    """A mistake in what the user typed or in what a file holds: one sentence that says what to do, exit code 2."""


class JobError(RuntimeError):
    """The job failed while it ran (a worker raised or died): the first cause is in the message, exit code 1."""


def no_finite_loss(where: str, leaf: int | None) -> JobError:
    name = "unknown" if leaf is None else leaf
    return JobError(
        f"the loss is not a number at {where}, leaf {name}: lower the learning rate or look at the data; earlier "
        "checkpoints are untouched"
    )


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a registry: it shows the nearest known name, or all of them."""
    names = sorted(known)
    close = nearest(name, names)
    if close is not None and len(names) > MANY_NAMES:
        return UserError(f"unknown {kind} {name!r}: did you mean {close!r}?")
    hint = f"did you mean {close!r}? " if close is not None else ""
    return UserError(f"unknown {kind} {name!r}: {hint}known are {', '.join(names) or 'none'}")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name that was probably meant; a `cutoff` nearer to 1 is for where anything else may have been meant."""
    names = sorted(known)
    # A part of a dotted name counts as near: `lr` for `schedule.lr`.
    close = [one for one in names if one.endswith(f".{name}")] or difflib.get_close_matches(name, names, 1, cutoff)
    return close[0] if close else None
