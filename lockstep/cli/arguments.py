"""A parser of arguments whose errors are one sentence, with the nearest known command, option or choice."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from lockstep.errors import UserError, nearest, unknown

PRINTING = ("--csv", "--json")
"""Options that change what is printed, which some expect to be written to a file."""


class Parser(argparse.ArgumentParser):
    """argparse, but that a mistake is a UserError."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message if "did you mean" in message else f"{message}; see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A command's parser knows its own options, which the parser of all commands does not: it must complain."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._about(rest[0], list(args or ())))
        return parsed, rest

    def _about(self, argument: str, arguments: list[str]) -> str:
        if not argument.startswith("-"):
            before = arguments[arguments.index(argument) - 1] if argument in arguments[1:] else ""
            hint = f": {before} takes no file, redirect it with `> {argument}`" if before in PRINTING else ""
            return f"{argument!r} is one argument too many{hint}"
        option = argument.partition("=")[0]
        if any(action.nargs == argparse.REMAINDER for action in self._actions):
            close = nearest(option, self._option_string_actions, 0.8)  # any other option may be the script's
            if close is None:
                return f"unknown option {option!r}: if it is the script's own, give it after the script"
        else:
            close = nearest(option, self._option_string_actions)
        return f"unknown option {option!r}" + (f": did you mean {close!r}?" if close is not None else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "command" if isinstance(action, argparse._SubParsersAction) else _name(action)
            self.error(str(unknown(kind, str(value), map(str, action.choices))))


def _name(action: argparse.Action) -> str:
    return f"value of {action.option_strings[0]}" if action.option_strings else str(action.metavar or action.dest)
