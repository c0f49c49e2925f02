"""What travels to the nodes of a cluster: this package, and the code of the user's own that processes import.

The driver packs, a node finds. Only source files travel, so that neither runs nor data nor environments do; data must
be where the recipe says on every node.
"""

from __future__ import annotations

import filecmp
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lockstep
from lockstep.errors import UserError

PACKAGE = "lockstep_files"
"""The name under which copies of the user's directories can be imported on a node: below it, each has a number."""
SUFFIXES = (".py", ".json", ".toml", ".yaml", ".yml")
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 2000
MAX_ENTRIES = 500
"""A directory with more than so many entries is taken for data; only what lies directly in the one that was named is
taken all the same."""


def pack(directories: Sequence[Path], stage: Path) -> list[Path]:
    """Put everything that travels below `stage`; the packages that it makes there."""
    own = stage / "lockstep"
    shutil.copytree(Path(lockstep.__file__).parent, own, ignore=shutil.ignore_patterns("__pycache__"))
    if not directories:
        return [own]
    files = stage / PACKAGE
    files.mkdir()
    (files / "__init__.py").touch()
    for number, directory in enumerate(directories):
        for path in source_files(directory):
            copy = files / str(number) / path.relative_to(directory)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return [own, files]


def source_files(directory: Path) -> list[Path]:
    """The source files of a directory and of those below it that may hold code."""
    found: list[Path] = []
    for path in _walk(directory):
        found.append(path)
        if len(found) > MAX_FILES:
            raise UserError(
                f"{directory} holds more than {MAX_FILES} source files, too many to send to a cluster: put the model "
                "into a directory of its own"
            )
    return sorted(found)


def _walk(root: Path) -> Iterator[Path]:
    for where, directories, files in os.walk(root):
        is_data = len(directories) + len(files) > MAX_ENTRIES
        if is_data and where != str(root):
            directories.clear()
            continue
        directories[:] = [] if is_data else [name for name in directories if _may_hold_code(Path(where, name))]
        for name in files:
            path = Path(where, name)
            if name.endswith(SUFFIXES) and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                yield path


def _may_hold_code(directory: Path) -> bool:
    """No caches and repositories, no runs, no virtual environments."""
    is_named_so = directory.name.startswith(".") or directory.name in ("__pycache__", "runs")
    return not is_named_so and not (directory / "pyvenv.cfg").exists()


def variables() -> dict[str, str]:
    """Variables of this process that are meant for all of the job."""
    return {name: value for name, value in os.environ.items() if name.startswith("LOCKSTEP_")}


def runtime_env(packages: list[str]) -> dict[str, Any]:
    """What Ray brings to the nodes. `ray job submit` may have asked for packages already, which stay; the rest of what
    it asked for, Ray adds by itself."""
    submitted = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}
    if "py_modules" in submitted:
        os.environ["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"
    return {"py_modules": [*packages, *submitted.get("py_modules", ())]}


def moved(directories: Sequence[str]) -> dict[str, str]:
    """Where a node has the directories that were packed, but for those whose code it sees in their own place."""
    spec = importlib.util.find_spec(PACKAGE) if directories else None
    if spec is None or spec.origin is None:
        return {}
    copies = {name: Path(spec.origin).parent / str(number) for number, name in enumerate(directories)}
    return {name: str(copy) for name, copy in copies.items() if not _has_all_of(Path(name), copy)}


def _has_all_of(original: Path, copy: Path) -> bool:
    files = [str(path.relative_to(copy)) for path in copy.rglob("*") if path.name.endswith(SUFFIXES)]
    same, _, _ = filecmp.cmpfiles(original, copy, files, shallow=False)
    return len(same) == len(files)
