"""Trainings whose processes are killed: one class for each who is measured, and what is left of a run.

A job says how far it is and who takes part in it; `drive` kills by a schedule. What the losses are is for `losses`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from bench import contestants
from bench.contestants import PEER_VARIABLES, RECIPES, started_process
from bench.journal import Entry, Tail, parse
from lockstep import checkpoint, metrics

WORLD = LEAVES = 4
"""Processes, each with one leaf."""
GLOBAL_BATCH = 32
RECIPE = "resnet20_small"

POLL_SECONDS = 0.01
SPREAD_SECONDS, GOLDEN = 0.2, 0.618
"""About a step: kills come so much later at most, and never twice at the same moment of a step."""
TIME_LIMIT_SECONDS = 1800.0
ENDING_SECONDS = 2.0
"""How long the other replicas may take when the first has finished."""


@dataclass(frozen=True)
class Run:
    """What a finished training left behind."""

    journals: list[list[Entry]]
    """Of every process; what replaces a dead one goes on in its journal. Lockstep has one for all."""
    kills: list[float]
    """When, in seconds since 1970."""
    weights: Path
    crashes: list[str] = field(default_factory=list)
    """The last words of processes that ended by themselves."""
    rows: list[metrics.Row] = field(default_factory=list)
    digest: str = ""


class Job(Protocol):
    """A training that runs."""

    def look(self) -> bool:
        """Take note of what has happened; whether it goes on."""

    @property
    def reached(self) -> int:
        """How many steps are done."""

    def members(self) -> list[psutil.Process]:
        """The living processes that take part, in the order of their start."""


Contestant = Callable[[Path, int, Sequence[int]], Run]
"""Trains so many steps in a directory that does not exist yet, with a kill each time it first reaches a given step."""


def drive(job: Job, kill_at: Sequence[int]) -> list[float]:
    """Kill the first, second, ... of those who take part in turn, until the job is over."""
    kills: list[float] = []
    limit = time.monotonic() + TIME_LIMIT_SECONDS
    while job.look():
        number = len(kills)
        if number < len(kill_at) and job.reached >= kill_at[number]:
            time.sleep(number * GOLDEN % 1.0 * SPREAD_SECONDS)
            if members := job.members():
                kills.append(time.time())
                members[number % WORLD % len(members)].kill()
        if time.monotonic() > limit:
            raise RuntimeError(f"no end within {TIME_LIMIT_SECONDS:.0f} s, at step {job.reached}")
        time.sleep(POLL_SECONDS)
    if len(kills) < len(kill_at):
        raise RuntimeError(f"it ended after {len(kills)} of {len(kill_at)} kills, at step {job.reached}")
    return kills


def lockstep(directory: Path, steps: int, kill_at: Sequence[int]) -> Run:
    directory.mkdir(parents=True)
    command = contestants.lockstep_command(directory, RECIPE, workers=WORLD, leaves=LEAVES, steps=steps)
    started, run = time.time(), directory / "run"
    with started_process(command, directory / "log") as process:
        kills = drive(_Lockstep(process, run / "metrics.jsonl"), kill_at)
        contestants.finish(process, directory / "log", started)
    rows = metrics.read(run / "metrics.jsonl")
    stored = checkpoint.verify(run / "checkpoints" / checkpoint.directory_name(steps))
    return Run(
        journals=[[Entry(row["time"], row["step"], GLOBAL_BATCH) for row in rows if row["kind"] == "train"]],
        kills=kills,
        weights=stored.path / checkpoint.FILES[0],
        rows=rows,
        digest=checkpoint.digest_of_files(stored),
    )


class _Lockstep:
    def __init__(self, process: subprocess.Popen[bytes], rows: Path) -> None:
        self._process = process
        self._tail = Tail(rows)
        self._members = set(range(WORLD))
        self.reached = 0

    def look(self) -> bool:
        for row in map(json.loads, self._tail.lines()):
            if row["kind"] == "train":
                self.reached = row["step"]
            elif row["kind"] == "generation":
                self._members |= set(row["joined"])
        return self._process.poll() is None

    def members(self) -> list[psutil.Process]:
        return [child for child in _children(self._process) if self._takes_part(child)]

    def _takes_part(self, child: psutil.Process) -> bool:
        """A replacement does only when it has joined."""
        with suppress(psutil.Error):
            return int(child.environ().get("LOCKSTEP_ID", -1)) in self._members
        return False


class Journals:
    """The journals of a peer's processes, as they grow."""

    def __init__(self, directory: Path) -> None:
        self._tails = [Tail(directory / f"rank{rank}.steps") for rank in range(WORLD)]
        self.entries: list[list[Entry]] = [[] for _ in range(WORLD)]
        self.reached = 0

    def read(self) -> None:
        for tail, entries in zip(self._tails, self.entries, strict=True):
            new = [parse(line) for line in tail.lines()]
            entries.extend(new)
            self.reached = max([self.reached, *(entry.step for entry in new if entry.samples)])


def torchrun(directory: Path, steps: int, kill_at: Sequence[int]) -> Run:
    """Everyone starts again when one dies, from the newest checkpoint."""
    directory.mkdir(parents=True)
    # torchrun that is killed would leave its workers behind; the shell tells them its number, for `parent.follow`.
    command = ["sh", "-c", 'LOCKSTEP_PARENT=$$ exec "$@"', "sh"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
    command += ["--max-restarts=100", "-m", "bench.peers.elastic", *arguments(directory, steps)]
    # With the shared store, which is the default, restarts hung or failed.
    variables = PEER_VARIABLES | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    started = time.time()
    with started_process(command, directory / "log", variables) as process:
        job = _Torchrun(process, directory)
        kills = drive(job, kill_at)
        contestants.finish(process, directory / "log", started)
    return Run(job.journals.entries, kills, directory / "final0.safetensors")


class _Torchrun:
    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process = process
        self.journals = Journals(directory)

    def look(self) -> bool:
        goes_on = self._process.poll() is None  # first, so that nothing is written after the last reading
        self.journals.read()
        return goes_on

    @property
    def reached(self) -> int:
        return self.journals.reached

    def members(self) -> list[psutil.Process]:
        return _children(self._process)


def torchft(directory: Path, steps: int, kill_at: Sequence[int]) -> Run:
    """Survivors go on; we replace the dead, as a launcher would."""
    directory.mkdir(parents=True)
    with ExitStack() as stack:
        job = _Torchft(stack, directory, steps)
        kills = drive(job, kill_at)
        return Run(job.journals.entries, kills, job.finished()[0], job.crashes)


class _Torchft:
    def __init__(self, stack: ExitStack, directory: Path, steps: int) -> None:
        self._stack = stack
        self._directory = directory
        self._command = [sys.executable, "-m", "bench.peers.ft"]
        self._recipe = arguments(directory, steps)
        self._variables = PEER_VARIABLES | {"TORCHFT_LIGHTHOUSE": self._light()}
        self._slots = [self._start(rank, 0) for rank in range(WORLD)]
        self._over_at: float | None = None
        self.journals = Journals(directory)
        self.crashes: list[str] = []

    def _light(self) -> str:
        address = self._directory / "lighthouse"
        command = [*self._command, "lighthouse", str(address)]
        process = self._stack.enter_context(started_process(command, self._directory / "lighthouse.log"))
        while not address.exists() and process.poll() is None:
            time.sleep(POLL_SECONDS)
        if not address.exists():
            raise RuntimeError(f"no lighthouse: {_last_line(self._directory / 'lighthouse.log')}")
        return address.read_text()

    def _start(self, rank: int, number: int) -> _Slot:
        log = self._directory / f"rank{rank}-{number}.log"
        command = [*self._command, *self._recipe, "--rank", str(rank), "--world", str(WORLD)]
        process = self._stack.enter_context(started_process(command, log, self._variables))
        return _Slot(rank, number, process, log, time.time())

    def look(self) -> bool:
        self.journals.read()
        if self.finished():
            self._over_at = self._over_at or time.time() + ENDING_SECONDS
            living = [slot for slot in self._slots if slot.process.poll() is None]
            return bool(living) and time.time() < self._over_at
        for slot in self._slots:
            if (code := slot.process.poll()) is not None:
                if code != -signal.SIGKILL:
                    self.crashes.append(f"exit code {code}, {_last_line(slot.log)}")
                self._slots[slot.rank] = self._start(slot.rank, slot.number + 1)
        return True

    @property
    def reached(self) -> int:
        return self.journals.reached

    def members(self) -> list[psutil.Process]:
        """Whoever has done a step since it was started."""
        slots = sorted(self._slots, key=lambda slot: slot.started)
        return [psutil.Process(slot.process.pid) for slot in slots if self._takes_part(slot)]

    def _takes_part(self, slot: _Slot) -> bool:
        entries = self.journals.entries[slot.rank]
        return slot.process.poll() is None and bool(entries) and entries[-1].time > slot.started

    def finished(self) -> list[Path]:
        """Final weights, in the order in which they were written."""
        return sorted(self._directory.glob("final*"), key=lambda path: path.stat().st_mtime)


@dataclass(frozen=True)
class _Slot:
    """A replica: the process that has its place now."""

    rank: int
    number: int
    """How many had it before."""
    process: subprocess.Popen[bytes]
    log: Path
    started: float


def arguments(directory: Path, steps: int) -> list[str]:
    return [f"{RECIPES}:{RECIPE}", "--leaves", str(LEAVES), "--steps", str(steps), "--out", str(directory)]


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The living ones, in the order of their start."""
    with suppress(psutil.Error):
        children = psutil.Process(process.pid).children()
        living = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        return sorted(living, key=lambda child: (child.create_time(), child.pid))
    return []


def _last_line(log: Path) -> str:
    """What an exception says; torchft's other threads go on talking for a while."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and "[INFO]" not in line]
    return lines[-1] if lines else "without a word"
