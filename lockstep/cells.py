"""Where the definitions of the running program stand: in its script, or in the cells of a notebook.

What of them belongs to a model is for `lockstep.extraction`.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any, TypeGuard

from lockstep.errors import UserError
from lockstep.signatures import Function, outside_functions

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Source:
    """A script, or a cell."""

    text: str

    @property
    def nodes(self) -> list[ast.AST]:
        """All but what is inside of functions and classes, the last first."""
        return sorted(outside_functions(_parsed(self.text)), key=lambda node: -getattr(node, "lineno", 0))

    @property
    def has_future_annotations(self) -> bool:
        return any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in self.nodes
        )

    def segment(self, node: Definition) -> str:
        """The text of a definition with its decorators."""
        lines = self.text.splitlines()[_first_line(node) - 1 : node.end_lineno]
        return textwrap.dedent("\n".join(lines))


@cache
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:  # a cell that never ran
        return ast.Module(body=[], type_ignores=[])


def executed() -> list[Source]:
    """What the program has run on its top level: its script, or its cells with the newest first."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return [Source(text) for text in reversed(shell.history_manager.input_hist_parsed)]
    file = getattr(sys.modules["__main__"], "__file__", None)
    return [Source("".join(linecache.getlines(file)))] if file is not None else []


def find(thing: Callable[..., Any]) -> tuple[Source, Definition]:
    """The source of a function or a class of the program, and its definition there."""
    if isinstance(thing, type):
        found = next(_of_class(thing), None)
    else:
        unwrapped = inspect.unwrap(thing)
        found = _of_function(unwrapped.__code__) if isinstance(unwrapped, FunctionType) else None
    if found is None:
        name = getattr(thing, "__name__", repr(thing))
        raise UserError(
            f"the source of {name} cannot be found, so workers could not be given it: put it into a file, and pass it "
            f"as file.py:{name}"
        )
    return found


def check_same(thing: Callable[..., Any], source: Source, node: Definition) -> None:
    """Refuse a class that is no longer what is written."""
    if not isinstance(thing, type) or not isinstance(node, ast.ClassDef):
        return
    program = vars(sys.modules["__main__"])
    for base in node.bases:
        if isinstance(base, ast.Name) and not any(program.get(base.id) is one for one in thing.__bases__):
            raise UserError(f"{base.id} has changed since {thing.__name__} was defined: define {thing.__name__} again")
    undecorated = {inner.name for inner in node.body if isinstance(inner, Function) and not inner.decorator_list}
    for name, function in vars(thing).items():
        if name in undecorated and getattr(function, "__qualname__", "") != f"{thing.__qualname__}.{name}":
            raise UserError(
                f"{thing.__name__}.{name} is not what the class says, it was set later: write it into the class"
            )


def _of_function(code: CodeType) -> tuple[Source, Definition] | None:
    source = _file_of(code)
    for node in source.nodes:
        if isinstance(node, Function) and node.name == code.co_name and _first_line(node) == code.co_firstlineno:
            return source, node
    return None


def _of_class(thing: type) -> Iterator[tuple[Source, Definition]]:
    """By the places of its methods; a class without any is the one of its name that was defined last."""
    places = [(_file_of(code), code.co_firstlineno) for code in _methods(thing)]
    for source, line in [(source, line) for source, line in places if source.text]:
        for node in source.nodes:
            if _is_class(node, thing) and _first_line(node) <= line <= (node.end_lineno or 0):
                yield source, node
    if not any(source.text for source, _ in places):
        yield from ((source, node) for source in executed() for node in source.nodes if _is_class(node, thing))


def _is_class(node: ast.AST, thing: type) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and node.name == thing.__name__


def _methods(thing: type) -> Iterator[CodeType]:
    for name, value in vars(thing).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and function.__qualname__ == f"{thing.__qualname__}.{name}":
            yield function.__code__


def _file_of(code: CodeType) -> Source:
    """Notebooks keep their cells where Python looks for lines, each version under a name of its own."""
    return Source("".join(linecache.getlines(code.co_filename)))


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
