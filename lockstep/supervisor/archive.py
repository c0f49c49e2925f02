"""What the supervisor writes to the run directory: it alone, and never so that training ends because it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from lockstep import checkpoint, inputs, metrics, provenance, strategies, tracefile
from lockstep.config import Job, Recipe
from lockstep.configfile import to_plain
from lockstep.histogram import Histogram
from lockstep.inputs import Inputs
from lockstep.loggers import Session, names_of
from lockstep.loggers.channel import Channels
from lockstep.metrics import FIGURES, MetricsFile, now
from lockstep.progress import Display
from lockstep.rundirectory import RunDirectory
from lockstep.spans import Event
from lockstep.supervisor.events import KeepCheckpoint
from lockstep.supervisor.probes import Probe
from lockstep.tracefile import TraceFile

FORMAT_VERSION = 1
ADDRESS_FILE = "supervisor.json"


class Archive:
    """Metrics, loggers, best.json, environment.json and the list of good checkpoints of one session."""

    def __init__(
        self,
        directory: RunDirectory,
        display: Display,
        first_step: int,
        keep: int,
        verified: int | None,
        shown_marks: dict[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self._display = display
        self._shown_marks = shown_marks or {}
        """What rows of training say of the data where they are shown; those of evaluations have it already."""
        self._keep_count = keep
        self._first_step = first_step
        self._last_row = first_step
        self.dropped_leaves = 0
        """Leaves that came too late for their steps in this session."""
        self.broken: set[str] = set()
        """Images of this run that could not be decoded."""
        self._verified = verified
        """Up to where what is written can be trusted; None where nothing is verified."""
        self._unwritable: set[str] = set()
        self._good: list[dict[str, Any]] = []
        self._metrics: MetricsFile | None = None
        self._loggers: Channels | None = None
        self._trace: TraceFile | None = None
        self._state = "failed"
        """How the session ends."""
        self._last_histograms = first_step
        self._has_image = first_step > 0
        self.evaluation: dict[str, Any] | None = None
        """The last one."""
        self.is_mixed = False
        """Whether workers with different arithmetic have taken part."""
        self._marks: dict[str, bool] = {}

    @contextlib.asynccontextmanager
    async def opened(self, recipe: Recipe, job: Job, num_steps: int | None = None) -> AsyncIterator[None]:
        """For as long as the job runs, whose length is `num_steps`. Whoever does not open it writes nothing."""
        checkpoint.remove_leftovers(self._directory.checkpoints)
        listed = self._directory.read_json("checkpoints.json") or {}
        self._good = [old for old in listed.get("checkpoints", []) if old["step"] <= self._first_step]
        self.is_mixed = bool((self._directory.read_json("environment.json") or {}).get("mixed"))
        self._marks = {} if strategies.bits(job) != "none" else {"reproducible": False}
        before = metrics.read(self._directory.metrics)
        self.broken = {row["image"] for row in before if row.get("kind") == "broken"}
        with self._directory.writing():
            self._metrics = MetricsFile(self._directory.metrics, self._first_step, num_steps)
        session = Session(self._directory, self._first_step, to_plain(recipe, job)["recipe"])
        self._loggers = Channels(names_of(job), session, self._note_from_thread(asyncio.get_running_loop()))
        self._restore(before)
        try:
            yield
        finally:
            with self._tolerant("metrics.jsonl"):  # a row that could not be written is tried once more
                self._metrics.close()
            if self._trace is not None:
                with self._tolerant("its trace"):
                    self._trace.close()
            await asyncio.to_thread(self._loggers.close, self._state)

    def _restore(self, before: list[metrics.Row]) -> None:
        """Write the rows that a supervisor before this one was killed over: a checkpoint may have been faster."""
        steps = [row["step"] for row in before if row.get("kind") == "train" and row["step"] <= self._first_step]
        rows = checkpoint.carried_rows(self._directory.checkpoints, max(steps, default=0), self._first_step)
        for row in rows:
            self._tell({"kind": "train", **row, "time": now()})

    def announce(self, address: str, token: str) -> None:
        """Where `stop` and the like find the supervisor; only the user may read it."""
        document = {"version": FORMAT_VERSION, "address": address, "token": token}
        with self._directory.writing():
            self._directory.write_json(ADDRESS_FILE, document, mode=0o600)

    def withdraw(self) -> None:
        """There is nobody to be found any more."""
        with contextlib.suppress(OSError):  # whoever finds it then gets no answer
            (self._directory.path / ADDRESS_FILE).unlink(missing_ok=True)

    def _note_from_thread(self, loop: asyncio.AbstractEventLoop) -> Callable[[str], None]:
        def note(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over, and nobody waits for the logger any more
                loop.call_soon_threadsafe(self._display.note, text)

        return note

    def record(self, row: dict[str, Any], best: dict[str, Any] | None) -> None:
        """A row of metrics, shown, written, and told to the loggers."""
        row = {**row, "time": now()}
        if row["kind"] == "train":
            if row["step"] <= self._last_row:
                return  # done again after a restart, or sent again by a new first member: the same figures
            self._last_row = row["step"]
            self.dropped_leaves += row.get("dropped_leaves", 0)
            self._display.train_row({**row, **self._shown_marks})
        if row["kind"] == "resize" and self._metrics is not None:
            with self._tolerant("config.json"):
                self._directory.write_workers(row.get("here", row["workers"]))
        if row["kind"] == "broken":
            self.broken.add(row["image"])
        if row["kind"] == "mixed":
            self._mark_as_mixed(row)
        if row["kind"] == "eval":
            if self.evaluation is None or row["step"] >= self.evaluation["step"]:  # an evaluator is late
                self.evaluation = row
            self._display.eval_row(row)
            self._write("best.json", {"version": FORMAT_VERSION, **(best or {})})
        if row["kind"] == "end":
            self._state = row["state"]
        self._tell(row)

    def _tell(self, row: metrics.Row) -> None:
        """To the file of metrics, and to the loggers what is for them."""
        with self._tolerant("metrics.jsonl"):
            if self._metrics is not None:
                self._metrics.write(row)
        if self._loggers is not None and row["kind"] in FIGURES:
            self._loggers.row(row)

    def image(self, tag: str, png: bytes, step: int) -> None:
        """Samples of the training set, once in the life of a run."""
        if self._loggers is not None and not self._has_image:
            self._has_image = True
            self._loggers.image(tag, png, step)

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        if self._loggers is not None and step > self._last_histograms:
            self._last_histograms = step
            self._loggers.histograms(found, step)

    def trace(self, worker: int, events: list[Event]) -> None:
        """What a worker did when, for a profile."""
        with self._tolerant("its trace"):
            if self._trace is None:
                self._trace = TraceFile(tracefile.path(self._directory.path, self._first_step))
            self._trace.write(worker, events)

    def keep(self, kept: KeepCheckpoint, needed_steps: set[int], in_use: set[str]) -> None:
        """Put a checkpoint on the list, then delete the oldest ones beyond what is kept."""
        entry = {"step": kept.step, "name": kept.name, "digest": kept.digest}
        is_known = entry in self._good  # written twice, for two reasons that came one after the other
        entries = [old for old in self._good if old["step"] != kept.step] + [entry]
        needed = needed_steps | {old["step"] for old in entries if old["name"] in in_use}
        if self._verified is not None:  # the newest that may be gone back to
            needed |= {max((old["step"] for old in entries if old["step"] <= self._verified), default=-1)}
        self._list(checkpoint.to_keep(entries, self._keep_count, needed), entries)
        if not is_known:
            self.record({"kind": "checkpoint", "step": kept.step, "digest": kept.digest}, None)

    def take_late(self, needed_steps: set[int]) -> str | None:
        """The digest of a checkpoint of which nobody was told before the end, and which then counts like any other."""
        if self._verified is not None:  # it may be of a state that the run has gone back from
            return None
        newest, _ = checkpoint.newest_good(self._directory.checkpoints)
        known = max((old["step"] for old in self._good), default=self._first_step or -1)
        if newest is None or newest.step <= known:
            return None
        self.keep(KeepCheckpoint(newest.step, newest.path.name, newest.digest), needed_steps, set())
        return newest.digest

    def candidates(self) -> list[Path]:
        """Checkpoints that a worker may begin from, the best first."""
        trusted = [old for old in self._good if self._verified is None or old["step"] <= self._verified]
        return [self._directory.checkpoints / old["name"] for old in sorted(trusted, key=_step, reverse=True)]

    def discard(self, name: str, digest: str) -> None:
        """Delete a checkpoint of wrong bits, unless the right one of that step has taken its place."""
        path = self._directory.checkpoints / name
        with contextlib.suppress(checkpoint.Damaged):
            if checkpoint.read_info(path).digest == digest:
                shutil.rmtree(path, ignore_errors=True)

    def trust(self, step: int) -> None:
        """What was written up to this step is verified; a later session must know."""
        self._verified = step
        self._list(self._good, self._good)

    def clean_after(self, worker: int) -> None:
        """A worker that was killed while it wrote leaves half a checkpoint."""
        if self._metrics is not None:
            checkpoint.remove_leftovers(self._directory.checkpoints, str(worker))

    def roll_back(self, step: int, best: dict[str, Any] | None) -> None:
        """Forget what was written after a step: it came from wrong bits."""
        self._last_row = min(self._last_row, step)
        self._last_histograms = min(self._last_histograms, step)
        self._list([old for old in self._good if old["step"] <= step], self._good)
        for path in self._directory.checkpoints.glob("step-*"):
            if path.name > checkpoint.directory_name(step):
                shutil.rmtree(path, ignore_errors=True)
        if best is not None:
            self._write("best.json", {"version": FORMAT_VERSION, **best})
        else:
            (self._directory.path / "best.json").unlink(missing_ok=True)
        self.record({"kind": "rollback", "step": step}, None)
        if self._loggers is not None:
            self._loggers.go_back(step)
        self._display.note(f"going back to step {step}, the last that was verified")

    def adopt(self, probe: Probe) -> None:
        """What the bits of this run depend on beyond its recipe."""
        before = self._directory.read_json("environment.json") or {}
        given = {"inputs": before["inputs"]} if "inputs" in before else {}
        document = {"version": FORMAT_VERSION, **self._marks, "probe": probe.digest, **probe.facts, **given}
        self._write("environment.json", document)

    def _mark_as_mixed(self, row: dict[str, Any]) -> None:
        self.is_mixed = True
        document = self._directory.read_json("environment.json") or {"version": FORMAT_VERSION}
        document["mixed"] = [*document.get("mixed", []), {key: row[key] for key in ("worker", "what", "step")}]
        self._write("environment.json", document)

    def _list(self, good: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
        self._good = good
        verified = {} if self._verified is None else {"verified": self._verified}
        self._write("checkpoints.json", {"version": FORMAT_VERSION, **verified, "checkpoints": good})
        for old in before:
            if old not in good:
                shutil.rmtree(self._directory.checkpoints / old["name"], ignore_errors=True)

    def _write(self, name: str, value: Any) -> None:
        if self._metrics is not None:
            with self._tolerant(name):
                self._directory.write_json(name, value)

    @contextlib.contextmanager
    def _tolerant(self, name: str) -> Iterator[None]:
        """Training goes on when a file cannot be written, with a warning, said once."""
        try:
            yield
        except OSError as error:
            if name not in self._unwritable:
                self._unwritable.add(name)
                self._display.note(f"warning: {name} cannot be written ({error.strerror}); training goes on")


def _step(entry: dict[str, Any]) -> int:
    return int(entry["step"])


def stored_verified(directory: RunDirectory) -> int | None:
    """Up to where an earlier session had verified; None if it did not verify."""
    document = directory.read_json("checkpoints.json")
    verified = document.get("verified") if isinstance(document, dict) else None
    return verified if isinstance(verified, int) else None


def stored_probe(directory: RunDirectory) -> Probe | None:
    """What the run computed when it began; None for a run that has not begun, or is older than probes."""
    document = directory.read_json("environment.json")
    if not isinstance(document, dict) or not isinstance(document.get("probe"), str):
        return None
    return Probe(document["probe"], provenance.facts_of(document))


def record_inputs(directory: RunDirectory, now: Inputs) -> None:
    """What a session begins with; what the run has computed so far stays recorded."""
    document = directory.read_json("environment.json")
    document = document if isinstance(document, dict) else {"version": FORMAT_VERSION}
    given = inputs.followed(inputs.read(document), now)
    directory.write_json("environment.json", document | {"inputs": inputs.to_plain(given)})
