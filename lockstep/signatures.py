"""What a source file says about a function, without running it: so that a mistake is found before any process starts,
and the command does not import what only workers need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lockstep.errors import UserError, unknown

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(source: Path, name: str) -> list[str] | None:
    """The names of the parameters of a function; None where they cannot be told. An unknown function is refused."""
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{source}, line {error.lineno}: {error.msg}") from None
    nodes = list(outside_functions(tree))
    bound = {one for node in nodes for one in _bound_by(node)}
    if name not in bound and not _may_have_more(tree, bound):
        raise unknown(f"name in {source}", name, [one for one in bound if not one.startswith("_")])
    definitions = [node for node in nodes if name in _bound_by(node)]
    return _parameters_of(definitions[0]) if len(definitions) == 1 else None


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


def _parameters_of(node: ast.AST) -> list[str] | None:
    """None for a class, for something imported, and where a decorator or `**` may take more than is written."""
    if not isinstance(node, Function) or node.decorator_list or node.args.kwarg is not None:
        return None
    return [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]
