"""How functions of the user's own are called, and the sentence for one that cannot be called so. What such a function
raises itself is the user's, and none of this."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lockstep.errors import UserError


def signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """What it takes; that of a class is that of its `__init__`. None for those that are compiled and do not tell."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def needed(signature: inspect.Signature, given: Collection[str] = ()) -> list[str]:
    """Parameters that must be given, and are not among those that are given by name."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in signature.parameters.items()
        if one.default is one.empty
        and one.kind not in variable
        and (name not in given or one.kind is one.POSITIONAL_ONLY)
    ]


def check_callable(name: str, thing: Any) -> None:
    if not callable(thing):
        raise UserError(f"{name} is no function: it is of the type {type(thing).__name__}, so name another one")


def check_needs(name: str, taken: inspect.Signature | None, given: Collection[str] = (), instead: str = "") -> None:
    """Refuse a function that needs more than it is given by name; `instead` is what else would do."""
    missing = [] if taken is None else needed(taken, given)
    if missing:
        arguments = f"with {', '.join(given)}" if given else "without arguments"
        raise UserError(
            f"{name} would be called {arguments}, and needs {', '.join(missing)}: name a function that needs "
            f"{'no more' if given else 'none'}, {instead}or give them defaults"
        )


def check_objective(name: str, kind: str, taken: inspect.Signature | None) -> None:
    """Refuse a loss or a metric that does not take outputs and targets."""
    try:
        if taken is not None:
            taken.bind(None, None)
    except TypeError:
        raise UserError(
            f"{name} cannot be called with two arguments: a {kind} takes the outputs and the targets"
        ) from None


def call(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What it returns. A TypeError that comes from none of its lines says that it cannot be called so."""
    try:
        return function(**arguments)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        said = str(error).partition("\n")[0]
        with_what = f"with {', '.join(arguments)}" if arguments else "without arguments"
        raise UserError(f"{name} cannot be called {with_what} ({said}): name another function") from None
