"""`lockstep recipes`: the built-in recipes, by the data that they are for. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.config import Recipe


def listing(recipes: Mapping[str, Callable[[], Recipe]]) -> str:
    """A heading for each data source, and a line for each recipe."""
    by_source: dict[str, list[str]] = {}
    for name, function in recipes.items():
        by_source.setdefault(function().data.source, []).append(name)
    width = max(map(len, recipes))
    blocks = []
    for source, names in by_source.items():
        blocks.append("\n".join([f"{source}:", *(f"  {name:{width}}  {summary(recipes[name])}" for name in names)]))
    return "\n\n".join(blocks)


def describe(function: Callable[..., Any]) -> str:
    """The whole docstring: what it is, the command, cost and expectation."""
    return inspect.getdoc(function) or ""


def summary(function: Callable[..., Any]) -> str:
    """Its first line."""
    return next(iter(describe(function).splitlines()), "")
