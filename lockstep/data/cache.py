"""What Lockstep can make again, kept on disk: drawn shapes, and data sets converted to files that can be mapped.

An entry is a directory that appears at once, complete, under its final name: it is written under a temporary name and
renamed. Processes that want the same entry at once wait for the first of them; one that is killed half-way leaves
nothing but a temporary directory, which the next one clears away.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from lockstep.errors import UserError

FORMAT_VERSION = 1
"""Part of the key of converted data: a newer Lockstep may lay them out otherwise."""

CONTENTS = "contents.json"
"""In every entry: the names and sizes of its files, so that one which lost something is made again."""


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "lockstep"


def converted(source: Path, write: Callable[[Path], None]) -> Path:
    """The entry for what a file holds, by its path, size and time of change."""
    status = source.stat()
    facts = [FORMAT_VERSION, str(source.resolve()), status.st_size, status.st_mtime_ns]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]
    return entry(f"data-{key}", write)


def entry(name: str, write: Callable[[Path], None]) -> Path:
    """The directory of that name; `write` fills a new one if it is not there or not complete."""
    target = cache_directory() / name
    if _is_complete(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target):
            if not _is_complete(target):
                _make(target, write)
    except OSError as error:
        raise _cannot_write(target, error) from None
    return target


def is_there(name: str) -> bool:
    return _is_complete(cache_directory() / name)


def entries(prefix: str) -> list[Path]:
    """Those whose names begin so; not what belongs to one, whose name goes on with a dot."""
    return [path for path in sorted(cache_directory().glob(f"{prefix}*")) if "." not in path.name]


def discard(target: Path) -> None:
    """Remove an entry that does not hold what it should; who has mapped its files keeps them."""
    try:
        with _lock(target):
            shutil.rmtree(target, ignore_errors=True)
    except OSError as error:
        raise _cannot_write(target, error) from None


def _cannot_write(target: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write to the cache {target.parent} ({error.strerror or error}): make room there, or set "
        "XDG_CACHE_HOME to a directory with room"
    )


def _is_complete(target: Path) -> bool:
    try:
        contents = json.loads((target / CONTENTS).read_text())
        return all((target / name).stat().st_size == size for name, size in contents.items())
    except (OSError, ValueError, AttributeError, TypeError):
        return False


@contextlib.contextmanager
def _lock(target: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process that holds it."""
    with (target.parent / f"{target.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(target: Path, write: Callable[[Path], None]) -> None:
    """Whoever holds the lock is alone: every temporary directory is one that a killed process left."""
    for leftover in target.parent.glob(f"{target.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
    try:
        write(temporary)
        sizes = {path.name: path.stat().st_size for path in temporary.iterdir()}
        (temporary / CONTENTS).write_text(json.dumps(sizes))
        for path in temporary.iterdir():
            _sync(path)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
