"""What a source file says about a function, without running it: so that a mistake is found before any process starts,
and the command does not import what only workers need."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.errors import UserError, unknown

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(source: Path, name: str) -> list[str] | None:
    """The names of the parameters of a function; None where they cannot be told, or any are taken. An unknown function
    is refused."""
    found = signature(source, name)
    takes_any = found is None or any(one.kind is one.VAR_KEYWORD for one in found.parameters.values())
    if found is None or takes_any:
        return None
    return [one.name for one in found.parameters.values() if one.kind is not one.VAR_POSITIONAL]


def signature(source: Path, name: str) -> inspect.Signature | None:
    """What a function or a class takes; None where it cannot be told. An unknown one is refused."""
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{source}, line {error.lineno}: {error.msg}") from None
    nodes = list(outside_functions(tree))
    bound = {one for node in nodes for one in _bound_by(node)}
    if name not in bound and not _may_have_more(tree, bound):
        raise unknown(f"name in {source}", name, [one for one in bound if not one.startswith("_")])
    definitions = [node for node in nodes if name in _bound_by(node)]
    return _signature_of(definitions[0]) if len(definitions) == 1 else None


def outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those inside of functions and classes."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> list[str]:
    """The names of the module that a node gives a value to."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return []


def _may_have_more(tree: ast.Module, bound: set[str]) -> bool:
    """Whether the module may have names that are not written in it."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return bool(bound & {"*", "__getattr__"} or used & {"exec", "globals", "setattr"})


def _signature_of(node: ast.AST) -> inspect.Signature | None:
    """None for something imported, a class without an `__init__` of its own, and where a decorator may take more than
    is written."""
    if isinstance(node, ast.ClassDef) and not node.decorator_list and not node.keywords:
        methods = {one.name: one for one in node.body if isinstance(one, Function)}
        found = _signature_of(methods["__init__"]) if "__init__" in methods and "__new__" not in methods else None
        return None if found is None else found.replace(parameters=list(found.parameters.values())[1:])
    if not isinstance(node, Function) or node.decorator_list:
        return None
    return inspect.Signature(_parameters(node.args))


def _parameters(taken: ast.arguments) -> list[inspect.Parameter]:
    kinds = inspect.Parameter
    placed = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(placed) - len(taken.defaults)) + taken.defaults
    found = [
        _parameter(one, kinds.POSITIONAL_ONLY if one in taken.posonlyargs else kinds.POSITIONAL_OR_KEYWORD, default)
        for one, default in zip(placed, defaults, strict=True)
    ]
    if taken.vararg is not None:
        found.append(_parameter(taken.vararg, kinds.VAR_POSITIONAL))
    named = zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
    found += [_parameter(one, kinds.KEYWORD_ONLY, default) for one, default in named]
    if taken.kwarg is not None:
        found.append(_parameter(taken.kwarg, kinds.VAR_KEYWORD))
    return found


def _parameter(argument: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
    """With its default as it is written, which nobody looks at."""
    return inspect.Parameter(argument.arg, kind, default=inspect.Parameter.empty if default is None else default)
