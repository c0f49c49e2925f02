"""How users name code of their own, for recipes and for models: `file.py:function` or `package.module:function`.

A module is looked for in a directory (the current one, or that of the recipe), then among the installed ones. One that
was found in a directory gets the absolute name `/directory/package.module:function`. What a source says about a
function without being run is in `lockstep.signatures`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep import calling, signatures, torchvisionimport
from lockstep.errors import UserError, unknown

MODULE = re.compile(r"(.*/)?[^\W\d]\w*(\.[^\W\d]\w*)*")
TIMM = "timm:"
"""How models of that library are named, which looks like a module and is none of the user's."""


def is_reference(text: str) -> bool:
    where, colon, _ = text.rpartition(":")
    return bool(colon) and not text.startswith(TIMM) and (_is_file(where) or MODULE.fullmatch(where) is not None)


def check_names_function(text: str, what: str) -> None:
    """Refuse the name of a file alone; `what` the function in it does."""
    if _is_file(text):
        raise UserError(f"{text} is a file: name the function in it that {what}, as {text}:function")


def directory(text: str) -> Path:
    """Where the file of a reference is, or the directory from which its module is imported."""
    where = text.rpartition(":")[0]
    return (Path(where).parent if _is_file(where) else _split(where)[0] or Path()).resolve()


def absolute(text: str, base: Path) -> str:
    """The same reference with an absolute path, so that workers find it from any directory. The name of a module that
    is not below `base` stays as it is: it is an installed one."""
    where, _, name = text.rpartition(":")
    if _is_file(where):
        return f"{(base / where).resolve()}:{name}"
    path, slash, module = where.rpartition("/")
    root = (base / f"{path}{slash}").resolve()
    return f"{root}/{module}:{name}" if _is_below(root, module) else text


def parameters(text: str) -> list[str] | None:
    """The names of the function's parameters, without importing it; None where only importing it would tell. A file,
    module or function that is not there is refused."""
    source = source_file(text)
    return None if source is None else signatures.parameters(source, text.rpartition(":")[2])


def signature(text: str) -> inspect.Signature | None:
    """The same with what must be given, for a function that takes any names too."""
    source = source_file(text)
    return None if source is None else signatures.signature(source, text.rpartition(":")[2])


def source_file(text: str) -> Path | None:
    """Where the code of a reference is; None for a compiled module. A file or module that is not there is refused."""
    where = text.rpartition(":")[0]
    return _file(where) if _is_file(where) else _origin(where)


def short(text: str) -> str:
    """The same reference as people speak of it, without directories."""
    return text.rpartition("/")[2]


def load(text: str) -> Any:
    """The object that a reference names; what its module raises while it is imported is the user's, and shown as is."""
    where, _, name = _here(text).rpartition(":")
    try:
        module = _import(where)
    except RuntimeError as error:
        if not torchvisionimport.is_of_another_torch(error):
            raise
        torchvisionimport.import_torchvision()
        module = _import(where)
    if not hasattr(module, name):
        own = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise unknown(f"name in {where}", name, own)
    return getattr(module, name)


def _import(where: str) -> ModuleType:
    return _import_file(_file(where).resolve()) if _is_file(where) else _import_module(where)


def call(text: str) -> Any:
    """What a function without parameters returns."""
    with shown_from_there(text):
        function = load(text)
        calling.check_callable(text, function)
        calling.check_needs(text, calling.signature(function))
        return function()


@contextmanager
def shown_from_there(text: str) -> Iterator[None]:
    """An error in the user's code is shown from that code on."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{text} cannot be used, because of an error in this code:\n{_from_there(error)}") from error


def _from_there(error: Exception) -> str:
    """The traceback without the frames that lead to the user's code, which are ours and of Python's imports."""
    ours = (str(Path(__file__).parent), "<frozen importlib", importlib.__file__)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _here(text: str) -> str:
    """The same reference on a host where an engine has put the user's directories elsewhere, and says so."""
    for directory, copy in json.loads(os.environ.get("LOCKSTEP_MOVED", "{}")).items():
        if text.startswith(f"{directory}/"):
            return f"{copy}{text.removeprefix(directory)}"
    return text


# Files


def _is_file(where: str) -> bool:
    return where.endswith(".py")


def _file(where: str) -> Path:
    try:
        with Path(where).open("rb"):
            return Path(where)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise UserError(f"there is no file {where}") from None
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from None


def _import_file(path: Path) -> ModuleType:
    """Import a file once, under a name that no module has; one that has changed since, as a notebook's may, anew."""
    unique = f"lockstep_user_{path.stem}_{hashlib.sha256(bytes(path) + path.read_bytes()).hexdigest()[:8]}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
    return sys.modules[unique]


# Modules


def _split(where: str) -> tuple[Path | None, str]:
    """The directory that a module is in, None for an installed one, and the module's dotted name."""
    path, slash, module = where.rpartition("/")
    if slash:
        return Path(f"{path}/").resolve(), module
    return (Path().resolve() if _is_below(Path(), module) else None), module


def _is_below(root: Path, module: str) -> bool:
    stem = root.joinpath(*module.split("."))
    return stem.with_suffix(".py").is_file() or (stem / "__init__.py").is_file()


def _find(where: str) -> ModuleSpec:
    """Where a module's code is. Neither it nor the packages around it are imported."""
    root, module = _split(where)
    first, *others = module.split(".")
    spec = _find_first(first, root)
    for part in others:
        if spec.submodule_search_locations is None:
            raise UserError(
                f"{spec.name!r} is a module, and no package with a module {part!r}: name what is in it as "
                f"{spec.name}:function"
            )
        places = list(spec.submodule_search_locations)
        inner = PathFinder.find_spec(f"{spec.name}.{part}", places)
        if inner is None:
            raise unknown(f"module in {spec.name}", part, _modules_in(places))
        spec = inner
    return spec


def _find_first(name: str, root: Path | None) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name) if root is None else None
    except ValueError:  # a module without a specification, such as __main__
        spec = None
    spec = spec or PathFinder.find_spec(name, [str(root or Path().resolve())])
    if spec is None:
        where = "here or among the installed ones" if root is None else f"in {root}"
        close = difflib.get_close_matches(name, _modules_in(["", *sys.path] if root is None else [str(root)]), 1)
        hint = (
            f"did you mean {close[0]!r}?" if close else "install it, or give its directory: DIR/package.module:function"
        )
        raise UserError(f"there is no module {name!r} {where}: {hint}")
    return spec


def _modules_in(places: list[str]) -> list[str]:
    return sorted({module.name for module in pkgutil.iter_modules(places)})


def _origin(where: str) -> Path | None:
    """The source of a module; None if it has none, being compiled."""
    origin = _find(where).origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _import_module(where: str) -> ModuleType:
    origin = _origin(where)
    root, name = _split(where)
    if root is not None and str(root) not in sys.path:
        sys.path.insert(0, str(root))  # and it stays there, for what the module imports later
    module = importlib.import_module(name)
    if root is not None and origin is not None and not origin.samefile(module.__file__ or "/"):
        raise UserError(f"{origin} cannot be imported, since {module.__file__} has the same name: rename one of them")
    return module
