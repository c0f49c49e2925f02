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


def absolute(text: str) -> str:
    """The same reference with an absolute path, so that workers find it from any directory."""
    path, _, name = text.rpartition(":")
    return f"{Path(path).resolve()}:{name}"


def load(text: str) -> Any:
    """The object that `file.py:name` names."""
    path_text, _, name = text.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise UserError(f"there is no file {path_text} (from {text!r})")
    module = _module(path.resolve())
    if not hasattr(module, name):
        raise unknown(f"name in {path_text}", name, (n for n in vars(module) if not n.startswith("_")))
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
