"""Away with a run, and with nothing else: `lockstep runs --delete`, and a run that could not be started.

A directory is deleted only if it holds a run's configuration and nothing but what Lockstep writes there: `--run DIR`
may have named a directory that has other things in it. Links are removed, never followed.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from lockstep import rundirectory
from lockstep.errors import UserError
from lockstep.rundirectory import OWN, RunDirectory


def check(names: Iterable[str]) -> list[RunDirectory]:
    """The runs that are meant, each once, all of them fit to be deleted."""
    meant = {directory.path.absolute(): directory for directory in map(rundirectory.existing, names)}
    for directory in meant.values():
        _refuse(directory)
    return list(meant.values())


def _refuse(directory: RunDirectory) -> None:
    path = directory.path
    if path.is_symlink():
        raise UserError(f"{path} is a link to {path.resolve()}: name that directory, or remove the link yourself")
    if path.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{path} is the directory that you are in, or holds it: go elsewhere first")
    directory.read_config()  # a config.json of another program is not that of a run
    if directory.is_locked():
        raise UserError(f"{directory.name} is running: end it first with `lockstep stop {shlex.quote(directory.name)}`")
    for entry in sorted(path.iterdir()):
        if not any(fnmatch(entry.name, pattern) for pattern in OWN):
            raise UserError(f"{path} holds {entry.name}, which Lockstep did not write: move it away first")


def delete(directory: RunDirectory) -> None:
    """Delete a run that `check` has let through. If this is cut short, what is left still is a run."""
    with directory.locked():
        try:
            for entry in list(directory.path.iterdir()):
                if entry.name not in ("config.json", ".lock"):
                    _remove(entry)
            (directory.path / "config.json").unlink()
            (directory.path / ".lock").unlink()
            directory.path.rmdir()
        except OSError as error:
            raise UserError(f"{directory.path} cannot be deleted ({error.strerror}: {error.filename})") from None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


class Before:
    """What a directory held before a run was put there, so that the run can be taken out again."""

    def __init__(self, directory: RunDirectory) -> None:
        self._path = directory.path
        self._was_there = directory.path.exists()
        self._found = _found(directory.path)

    def restore(self) -> None:
        """Take out what has been put there since; what was there before stays, whatever its name."""
        if not self._was_there:
            shutil.rmtree(self._path, ignore_errors=True)
            return
        new = _found(self._path) - self._found
        for entry in new:
            if entry.parent not in new:  # otherwise it goes with its directory
                with contextlib.suppress(OSError):
                    _remove(entry)


def _found(path: Path) -> set[Path]:
    """What there is under the names that Lockstep uses."""
    return {entry for pattern in (*OWN, "code/*") for entry in path.glob(pattern)}


def num_bytes(directory: RunDirectory) -> int:
    """What a run takes on the disk; what links point to is not counted."""
    return sum(path.lstat().st_size for path in directory.path.rglob("*") if not path.is_dir())
