"""The directory of a run: where its files are, how a new one gets its name, and what a RUN on the command line means.

runs/<name>/config.json  environment.json  metrics.jsonl  best.json  checkpoints.json  supervisor.json
            checkpoints/  logs/<role>-<id>.log  events.out.tfevents.*
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.config import Job, Recipe, from_plain, to_plain
from lockstep.errors import UserError, unknown

ROOT = Path("runs")


class RunDirectory:
    """Paths, and the small JSON files, of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"

    @property
    def name(self) -> str:
        """What to type to mean this run."""
        return self.path.name if self.path.parent.resolve() == ROOT.resolve() else str(self.path)

    def log(self, role: str, id_: int) -> Path:
        return self.path / "logs" / f"{role}-{id_}.log"

    def exists(self) -> bool:
        return (self.path / "config.json").is_file()

    def write_config(self, recipe: Recipe, job: Job) -> None:
        self.write_json("config.json", to_plain(recipe, job))

    def read_config(self) -> tuple[Recipe, Job]:
        path = self.path / "config.json"
        try:
            plain = json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{self.path} is not a run: it has no config.json") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): restore it, or start a new run") from None
        return from_plain(plain, str(path))

    def write_json(self, name: str, value: Any, mode: int = 0o644) -> None:
        """Replace a file in one step; a reader sees the old one or the new one."""
        temporary = self.path / f".{name}.{os.getpid()}"
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            file.write(json.dumps(value, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path / name)

    def read_json(self, name: str) -> Any | None:
        """The contents of a small file, or None if it is missing or damaged."""
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None

    def is_locked(self) -> bool:
        """Whether a supervisor is at work on it."""
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One supervisor per run. The lock ends with the process, however it ends."""
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path} ({error.strerror}): choose another place with --run"
            ) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.name} is being trained by another process: wait for it, or stop it") from None
            yield
        finally:
            os.close(descriptor)


def for_new_run(run: str | None, recipe_name: str) -> RunDirectory:
    """The directory that `--run` names, or the next free `<recipe>-<n>`. It need not exist yet."""
    if run is not None:
        return RunDirectory(_path_of(run))
    stem = re.sub(r"[^\w.-]+", "-", recipe_name)
    taken = [
        int(match[1])
        for path in ROOT.glob(f"{stem}-*")
        if (match := re.fullmatch(rf"{re.escape(stem)}-(\d+)", path.name))
    ]
    return RunDirectory(ROOT / f"{stem}-{max(taken, default=0) + 1}")


def create(directory: RunDirectory, is_new: bool) -> None:
    """Make the directory; FileExistsError if it must be new, and another process was first to take the name."""
    try:
        directory.path.mkdir(parents=True, exist_ok=not is_new)
        (directory.path / "logs").mkdir(exist_ok=True)
        directory.checkpoints.mkdir(exist_ok=True)
    except FileExistsError:
        if is_new:
            raise
        raise UserError(f"{directory.path} is in the way, and no directory: choose another place with --run") from None
    except OSError as error:
        raise UserError(f"cannot create {directory.path} ({error.strerror}): choose another place with --run") from None


def existing(run: str) -> RunDirectory:
    """The run that a name, a path or `last` means."""
    if run == "last":
        runs = sorted(ROOT.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
        if not runs:
            raise UserError(f"there is no run in {ROOT}/ yet: start one with `lockstep train demo`")
        return RunDirectory(runs[-1].parent)
    directory = RunDirectory(_path_of(run))
    if not directory.exists():
        known = [path.parent.name for path in ROOT.glob("*/config.json")]
        if os.sep in run or not known:
            raise UserError(f"{directory.path} is not a run: it has no config.json")
        raise unknown("run", run, known)
    return directory


def _path_of(run: str) -> Path:
    return Path(run) if os.sep in run or run in (".", "..") else ROOT / run
