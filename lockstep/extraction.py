"""Functions and classes of a notebook or a script, written down so that workers can import them: with the imports, the
constants and the other definitions that they use. Nothing is pickled, and what cannot be written is refused.

Workers do not import the program itself, which would start to train again; nor could they import a notebook.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import symtable
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from lockstep import cells, runcode
from lockstep.errors import UserError

FIND = "import sys, importlib.util as u; print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
FUTURE = "from __future__ import annotations"
MISSING = object()
OF_EVERY_MODULE = ("__name__", "__doc__", "__builtins__")
COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")


def check_place(thing: Any) -> None:
    """Refuse what has no name of its own on the top level of its file."""
    name = thing.__name__
    if name == "<lambda>":
        raise UserError("a lambda has no name by which workers could find it: write it as a function with `def`")
    if "." in thing.__qualname__:
        raise UserError(
            f"{thing.__qualname__} is defined inside of something else, whose variables workers do not have: define "
            f"{name} on the top level"
        )


def text(things: Iterable[Callable[..., Any]]) -> str:
    """A file with these definitions of the program, and with all that they use."""
    gathered = _Gathered()
    for thing in things:
        gathered.define(thing, thing.__name__)
    return gathered.text()


class _Gathered:
    """What goes into the file."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}
        """The statement, and the package that it needs."""
        self._constants: dict[str, str] = {}
        self._definitions: dict[str, tuple[Any, str]] = {}
        """By name: what it is, and its text."""
        self._waits_for: dict[str, set[str]] = {}
        """What must stand above a definition: what it uses when it is defined, and not when it is called."""
        self._aliases: dict[str, str] = {}
        self._has_future_annotations = False

    def text(self) -> str:
        self._check_imports()
        head = [f"{runcode.MARK}: what a run uses of the notebook or the script that started it."]
        future = [FUTURE] if self._has_future_annotations else []
        constants = [f"{name} = {value}" for name, value in sorted(self._constants.items())]
        definitions = [[self._definitions[name][1], *self._aliases_of(name)] for name in self._in_order()]
        parts = [head, future, sorted(self._imports), constants, *definitions]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def _aliases_of(self, name: str) -> list[str]:
        return [f"{alias} = {name}" for alias, of in sorted(self._aliases.items()) if of == name]

    def define(self, thing: Any, name: str) -> None:
        """Add a definition of the program, under its own name and this one."""
        check_place(thing)
        own = thing.__name__
        if name != own:
            self._aliases[name] = own
        if own in self._definitions:
            if self._definitions[own][0] is not thing:
                raise UserError(f"two different definitions of {own} are used: give one of them another name")
            return
        source, node = cells.find(thing)
        cells.check_same(thing, source, node)
        definition = source.segment(node)
        self._has_future_annotations |= source.has_future_annotations
        self._definitions[own] = thing, definition
        future = f"{FUTURE}\n" if source.has_future_annotations else ""
        table = symtable.symtable(future + definition, own, "exec")
        self._waits_for[own] = names = _used(table, at_once=True)
        for used in sorted(names | _used(table, at_once=False)):
            if used != own:
                self._add(used, source, own)

    def _add(self, name: str, source: cells.Source, user: str) -> None:
        """Add what a name means to the one who uses it."""
        program = vars(sys.modules["__main__"])
        if name in OF_EVERY_MODULE:
            return
        if name not in program:
            if not hasattr(builtins, name):
                raise UserError(f"{user} uses {name!r}, which is not defined: define it before, or inside of {user}")
            return
        value = program[name]
        if callable(value) and getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            self.define(value, name)
        elif imports := _imports(name, value, [source, *cells.executed()]):
            self._imports |= imports
        elif (literal := _literal(value)) is not None:
            self._constants[name] = literal
        else:
            raise UserError(
                f"{user} uses {name!r}, and a {type(value).__name__} cannot be written into a file for workers: make "
                f"it inside of {user}, or put both into a file and pass it as file.py:{user}"
            )

    def _check_imports(self) -> None:
        for package in not_found(sorted(set(self._imports.values()))):
            uses = next(statement for statement, needs in self._imports.items() if needs == package)
            raise UserError(
                f"{', '.join(self._definitions)} needs `{uses}`, a module of your own that workers would not find: put "
                "what uses it into a file beside that module, import it from there and pass it"
            )

    def _in_order(self) -> list[str]:
        done: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...]) -> None:
            needed = {self._aliases.get(one, one) for one in self._waits_for[name]} & self._definitions.keys()
            for other in sorted(needed.difference(above, [name], done)):
                if other not in done:
                    visit(other, (*above, name))
            done[name] = None

        for name in self._definitions:
            if name not in done:
                visit(name, ())
        return list(done)


def _used(table: symtable.SymbolTable, at_once: bool) -> set[str]:
    """The names of the program that a definition uses: all of them, or those that it needs when it is defined."""
    if at_once and table.get_type() == "function" and table.get_name() not in COMPREHENSIONS:
        return set()
    is_top = table.get_type() == "module"
    names = {one.get_name() for one in table.get_symbols() if one.is_referenced() and (is_top or one.is_global())}
    return names.union(*(_used(inner, at_once) for inner in table.get_children()))


def _imports(name: str, value: Any, sources: list[cells.Source]) -> dict[str, str]:
    """The statements by which the program has imported something, or by which it could have been."""
    nodes = [node for source in sources for node in source.nodes]
    for node in nodes:
        found = None
        if isinstance(node, ast.Import):
            found = _imported(name, value, node, nodes)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found = _imported_from(name, value, node)
        if found:
            return {statement: package_of(module) for statement, module in found.items()}
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", ".")
    if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
        return {f"import {value.__name__} as {name}": package_of(value.__name__)}
    if isinstance(module, str) and getattr(sys.modules.get(module), own, None) is value:
        return {f"from {module} import {own} as {name}": package_of(module)}
    return {}


def _imported(name: str, value: Any, node: ast.Import, nodes: list[ast.AST]) -> dict[str, str]:
    """`import a.b` and `import a.c` give one name: whoever uses `a` may need both."""
    for alias in node.names:
        if alias.asname == name and sys.modules.get(alias.name) is value:
            return {f"import {ast.unparse(alias)}": alias.name}
        if alias.asname is None and package_of(alias.name) == name and sys.modules.get(name) is value:
            every = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names if not one.asname]
            return {f"import {one}": one for one in every if package_of(one) == name}
    return {}


def _imported_from(name: str, value: Any, node: ast.ImportFrom) -> dict[str, str]:
    where = str(node.module)
    for alias in node.names:
        own = name if alias.name == "*" else alias.name
        bound = own if alias.asname is None else alias.asname
        there = (getattr(sys.modules.get(where), own, MISSING), sys.modules.get(f"{where}.{own}", MISSING))
        if bound == name and any(one is value for one in there):
            return {f"from {where} import {own}{'' if own == name else f' as {name}'}": where}
    return {}


def package_of(module: str) -> str:
    return module.partition(".")[0]


def _literal(value: Any) -> str | None:
    """A constant as it is written; None if it is none. `repr` of numbers of numpy and the like is no literal."""
    try:
        written = repr(value)
        return written if repr(ast.literal_eval(written)) == written else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def not_found(modules: list[str]) -> list[str]:
    """Those that a new process does not find from anywhere: not the neighbours of the program."""
    command = [sys.executable, "-P", "-c", FIND, *modules]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.split() if result.returncode == 0 else modules
