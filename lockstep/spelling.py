"""How what is said to a caller in Python names the options of the command: `--hold-out` is `hold_out` there.

Sentences are written once, for the command, by whoever finds a mistake; here they are respelt where `lockstep.train`
and `lockstep.runs` let them out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator

from lockstep.errors import JobError, UserError
from lockstep.progress import Display
from lockstep.request import Request

IRREGULAR = {
    "eval-labels": "eval_label_path",
    "labels": "label_path",
    "logger": "loggers",
    "pack": 'placement="pack"',
    "set": "settings",
    "spread": 'placement="spread"',
}
"""Options of the command that have another name in Python."""
ARGUMENTS = ("checkpoint", "out", "recorded", "resume", "run", "to", "top", "top1")
"""Those of `lockstep.train` and of the functions of `lockstep.runs` that are no part of a request."""
SWITCHES = ("allow_mixed", "anonymous", "channels_last", "compile", "profile", "recorded", "replace", "resume")
"""Arguments that are true if the command names them."""

KNOWN = frozenset(field.name for field in dataclasses.fields(Request)) - {"program"} | frozenset(ARGUMENTS)
OPTION = re.compile(
    r"""
    ^[ \t].*$                          # the end of a log is indented, and stays
    | `[^`\n]*`                        # and so does a command to type
    | (?<![\w/.-])--set\ (?P<key>[\w.]+)=(?P<value>[\w./-]*\w)
    | (?<![\w/.-])--(?P<option>[a-z][a-z0-9-]*)
      (?P<equals>\ (?=\d|'|[A-Z]+\b))?  # before a number, a quotation, or a word for a value
    """,
    re.MULTILINE | re.VERBOSE,
)


def respelt(text: str) -> str:
    """The same with the arguments of Python's functions in the place of the command's options."""
    return OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    if found["key"] is not None:
        value = found["value"] if re.fullmatch("[A-Z]+|[0-9.]+", found["value"]) else json.dumps(found["value"])
        return f"settings={{{json.dumps(found['key'])}: {value}}}"
    if found["option"] is None or (name := _name(found["option"])) is None:
        return found[0]
    return f"{name}=" if found["equals"] else name


def _name(option: str) -> str | None:
    """What an option is in Python; None if there is no such argument, as for an option of another program."""
    if option in IRREGULAR:
        return IRREGULAR[option]
    name = option.replace("-", "_")
    if name in KNOWN:
        return f"{name}=True" if name in SWITCHES else name
    return f"{positive}=False" if (positive := name.removeprefix("no_")) in KNOWN and positive != name else None


@contextlib.contextmanager
def respelling() -> Iterator[None]:
    """Errors that leave this name what a caller in Python can give."""
    try:
        yield
    except (UserError, JobError) as error:
        raise type(error)(respelt(str(error))) from None


class Respelling:
    """Another display, whose notes are respelt."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self.start, self.close = display.start, display.close
        self.train_row, self.eval_row = display.train_row, display.eval_row

    def note(self, text: str) -> None:
        self._display.note(respelt(text))
