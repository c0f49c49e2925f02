"""The directory of a run: where its files are, how a new one gets its name, and what a RUN on the command line means.

runs/<name>/config.json  dataset.json  environment.json  metrics.jsonl  best.json  checkpoints.json  supervisor.json
            followed.jsonl  checkpoints/  code/  logs/<role>-<id>.log  events.out.tfevents.*
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep import runcode
from lockstep.config import Job, Recipe
from lockstep.configfile import from_plain, to_plain
from lockstep.errors import UserError, nearest, unknown

ROOT = Path("runs")
WAIT_SECONDS = 0.5
LAST = re.compile(r"last(?:~(\d*))?")
OWN = (
    *("config.json", "dataset.json", "environment.json", "metrics.jsonl", "best.json", "checkpoints.json"),
    *("supervisor.json", "checkpoints", "logs", "events.out.tfevents.*", ".lock", ".pinned-*", ".*.json.*"),
    *("followed.jsonl", "code", "loggers.json", "metrics.csv", ".metrics.csv.*", "wandb", "mlruns", "trace*.json"),
)
"""What Lockstep writes to a run's directory, with wildcards; a directory with anything else is never deleted."""


class RunDirectory:
    """Paths, and the small JSON files, of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.followed = path / "followed.jsonl"
        self.name = path.name if path.parent.resolve() == ROOT.resolve() else str(path)
        """What to type to mean this run, here and now: the current directory may be gone when the run is over."""

    def log(self, role: str, id_: int) -> Path:
        return self.path / "logs" / f"{role}-{id_}.log"

    def exists(self) -> bool:
        return (self.path / "config.json").is_file()

    def write_config(self, recipe: Recipe, job: Job) -> None:
        self.write_json("config.json", to_plain(runcode.with_relative_names(recipe, self.path), job))

    def write_workers(self, workers: int) -> None:
        """What was asked for last on this host is what the run has when it is resumed. The time of the file stays: it
        says when the run was started or resumed."""
        path = self.path / "config.json"
        plain, times = json.loads(path.read_text()), path.stat()
        plain["job"]["workers"] = workers
        self.write_json("config.json", plain)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def read_config(self) -> tuple[Recipe, Job]:
        path = self.path / "config.json"
        try:
            plain = json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{self.path} is not a run: it has no config.json") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): restore it, or start a new run") from None
        recipe, job = from_plain(plain, str(path))
        return runcode.with_absolute_names(recipe, self.path), job

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
    def writing(self) -> Iterator[None]:
        """Whoever cannot write here, before training begins, is told so in a sentence."""
        try:
            yield
        except OSError as error:
            advice = (
                "see to it that there is room, and that you may" if self.exists() else "choose another place with --run"
            )
            raise UserError(f"cannot write to {self.path} ({error.strerror or error}): {advice}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One supervisor per run. The lock ends with the process, however it ends."""
        with self.writing():
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
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
        if LAST.fullmatch(run):
            raise UserError(f"no run can be called {run}, which means another one: choose another name with --run")
        directory = RunDirectory(_place_of_its_own(run))
        if run.startswith("-") and not directory.exists():
            raise UserError(f"a run called {run} would look like an option: choose another name with --run")
        return directory
    stem = re.sub(r"[^\w.-]+", "-", recipe_name).lstrip("-")
    if not stem:
        raise UserError(f"no run can be named after the recipe {recipe_name!r}: choose a name with --run")
    taken = [
        int(match[1])
        for path in ROOT.glob(f"{stem}-*")
        if (match := re.fullmatch(rf"{re.escape(stem)}-(\d+)", path.name))
    ]
    return RunDirectory(ROOT / f"{stem}-{max(taken, default=0) + 1}")


def _place_of_its_own(run: str) -> Path:
    """Where a run of this name lies, unless other runs or the user's own files would be inside it."""
    path = _path_of(run)
    here = Path.cwd().resolve()
    if path.resolve() in (ROOT.resolve(), here, *here.parents):
        raise UserError(
            f"--run {run} is no place of its own for a run, since other files are in {path}: choose a name, which "
            f"becomes {ROOT}/NAME, or a new directory"
        )
    return path


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


def all_runs() -> list[RunDirectory]:
    """Everything below `runs/`, the one that was started or resumed last at the end."""
    return [RunDirectory(path.parent) for path in sorted(ROOT.glob("*/config.json"), key=_changed)]


def _changed(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.parent.name
    except FileNotFoundError:  # deleted meanwhile
        return 0.0, path.parent.name


def existing(run: str) -> RunDirectory:
    """The run that a name, a path, `last`, or `last~2` (two before the last) means."""
    if match := LAST.fullmatch(run):
        return _counted(run, 0 if match[1] is None else int(match[1] or 1))
    directory = RunDirectory(_path_of(run))
    if not directory.exists():
        raise _not_a_run(run, directory)
    return directory


def awaited(run: str, note: Callable[[str], None]) -> RunDirectory:
    """As `existing`, but a run that is not there yet is waited for."""
    if LAST.fullmatch(run):
        return existing(run)
    directory = RunDirectory(_path_of(run))
    if not directory.exists():
        note(f"{_not_a_run(run, directory)}; waiting for it")
    while not directory.exists():
        time.sleep(WAIT_SECONDS)
    return directory


def _counted(run: str, back: int) -> RunDirectory:
    runs = all_runs()
    if not runs:
        raise UserError(f"there is no run in {ROOT}/ yet: start one with `lockstep train demo`")
    if back >= len(runs):
        there = "is one run" if len(runs) == 1 else f"are {len(runs)} runs"
        oldest = "last" if len(runs) == 1 else f"last~{len(runs) - 1}"
        raise UserError(f"there is no run {run}: there {there} in {ROOT}/, and the oldest is {oldest}")
    return runs[-1 - back]


def _not_a_run(run: str, directory: RunDirectory) -> UserError:
    if os.sep not in run and (known := [one.name for one in all_runs()]):
        if LAST.fullmatch(run.lower()):
            return UserError(f"unknown run {run!r}: did you mean {run.lower()!r}?")
        if run.lower().startswith("last~"):
            return UserError(f"unknown run {run!r}: give `last`, or `last~1` for the one before")
        return unknown("run", run, known if nearest(run, ["last"], cutoff=0.7) is None else [*known, "last"])
    beside = {path.parent.name: path.parent for path in directory.path.parent.glob("*/config.json")}
    close = nearest(directory.path.name, beside)
    hint = f"; did you mean {str(beside[close])!r}?" if close is not None else ""
    if not directory.path.exists():
        return UserError(f"there is no run {directory.path}{hint or ': `lockstep runs` lists those that are there'}")
    return UserError(f"{directory.path} is not a run: it has no config.json{hint}")


def _path_of(run: str) -> Path:
    if not run.strip():  # an unset variable of a shell, most often
        raise UserError("the name of the run is empty: give a name, or a directory")
    return Path(run) if os.sep in run or run in (".", "..") else ROOT / run
