"""`file.py:function`: how users name code of their own, for recipes and for models."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.errors import UserError, unknown


def is_reference(text: str) -> bool:
    return ":" in text and text.rpartition(":")[0].endswith(".py")


def directory(text: str) -> Path:
    """Where the file of a reference is."""
    return Path(text.rpartition(":")[0]).resolve().parent


def absolute(text: str, base: Path) -> str:
    """The same reference with an absolute path, so that workers find it from any directory."""
    path, _, name = text.rpartition(":")
    return f"{(base / path).resolve()}:{name}"


def check(text: str) -> None:
    """Refuse a reference to a file that is not there."""
    path = text.rpartition(":")[0]
    if not Path(path).is_file():
        raise UserError(f"there is no file {path} (from {text!r})")


def load(text: str) -> Any:
    """The object that `file.py:name` names."""
    check(text)
    path, _, name = text.rpartition(":")
    module = _module(Path(path).resolve())
    if not hasattr(module, name):
        own = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise unknown(f"name in {path}", name, own)
    return getattr(module, name)


def _module(path: Path) -> ModuleType:
    """Import a file once; what it raises while it is imported is the user's, and shown as it is."""
    unique = f"lockstep_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
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
