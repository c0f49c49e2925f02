"""Loggers, by name: who else is told the figures that go into `metrics.jsonl`. One file each beside this one.

The table can be read without importing any of them. A logger works in a thread of its own, see `channel.py`: it may be
slow, hang or fail, and training goes on.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lockstep.config import Job
from lockstep.errors import UserError, unknown
from lockstep.histogram import Histogram
from lockstep.metrics import Row
from lockstep.rundirectory import RunDirectory

FORMAT_VERSION = 1


class Logger(Protocol):
    """What the module of a logger returns from `open_logger(session)`, at a start or a resume. It may raise."""

    def row(self, row: Row) -> None:
        """A row of kind `train` or `eval`, as in `metrics.jsonl`."""

    def image(self, tag: str, png: bytes, step: int) -> None: ...

    def histograms(self, found: dict[str, Histogram], step: int) -> None: ...

    def go_back(self, step: int) -> None:
        """What was said of later steps was wrong; they are done again."""

    def close(self, state: str) -> None:
        """The session is over: `finished`, `stopped` or `failed`."""


@dataclass(frozen=True)
class Entry:
    """Where a logger is, and what it needs."""

    module: str
    package: str | None = None
    """What must be installed; None if nothing beyond Lockstep's own dependencies."""
    extra: str = ""
    """The extra of Lockstep that installs it."""
    pictures: bool = True
    """Whether it shows images and histograms: if no logger does, none are made."""


LOGGERS: dict[str, Entry] = {
    "tensorboard": Entry("lockstep.loggers.tensorboard"),
    "csv": Entry("lockstep.loggers.csv", pictures=False),
    "wandb": Entry("lockstep.loggers.wandb", package="wandb", extra="wandb"),
    "mlflow": Entry("lockstep.loggers.mlflow", package="mlflow", extra="mlflow"),
}


@dataclass(frozen=True)
class Session:
    """What a logger is opened with."""

    directory: RunDirectory
    first_step: int
    """What an earlier session said of later steps is said again."""
    recipe: dict[str, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stored_id(self, name: str) -> str | None:
        """The identity of this run at a logger's service, from an earlier session."""
        document = self.directory.read_json("loggers.json")
        found = document.get(name) if isinstance(document, dict) else None
        return found if isinstance(found, str) else None

    def store_id(self, name: str, id_: str) -> None:
        with self._lock:
            document = self.directory.read_json("loggers.json")
            known = document if isinstance(document, dict) else {}
            self.directory.write_json("loggers.json", {**known, "version": FORMAT_VERSION, name: id_})


def choose(tensorboard: bool | None, loggers: Collection[str] | None, stored: Job | None) -> dict[str, Any]:
    """What a job has of what was asked for, now or when the run began; None asks for nothing, and to name `tensorboard`
    turns it on again."""
    if tensorboard is False and "tensorboard" in (loggers or ()):
        raise UserError("--no-tensorboard and --logger tensorboard contradict each other: leave one of them out")
    names = loggers if loggers is not None else stored.loggers if stored is not None else ()
    if tensorboard is None:
        tensorboard = "tensorboard" in names or stored is None or stored.tensorboard
    return {"tensorboard": tensorboard, "loggers": tuple(name for name in names if name != "tensorboard")}


def names_of(job: Job) -> tuple[str, ...]:
    """The loggers of a job, each once."""
    return tuple(dict.fromkeys((*(("tensorboard",) if job.tensorboard else ()), *job.loggers)))


def check_loggers(names: Iterable[str]) -> None:
    """Refuse a name that nobody knows, and a logger that is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        entry = LOGGERS[name]
        if entry.package is not None and importlib.util.find_spec(entry.package) is None:
            raise UserError(f"the logger {name} is not installed: pip install 'lockstep-train[{entry.extra}]'")


def show_pictures(job: Job) -> bool:
    """Whether any logger of this job shows images and histograms."""
    return any(LOGGERS[name].pictures for name in names_of(job))


def check_histograms(job: Job, asked: int | None) -> None:
    """Refuse what was `asked` for if nobody shows it; what was asked for when the run began may stay."""
    if job.histograms_every < 0:
        raise UserError(
            f"--histograms-every takes a number of steps, or 0 for every evaluation, not {job.histograms_every}"
        )
    if asked and not show_pictures(job):
        raise UserError("--histograms-every is for loggers that show pictures, and there is none: leave it out")
