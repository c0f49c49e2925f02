"""The supervisor's decisions as a pure state machine: events in, actions out. No clock, no socket, no process.

Tests drive it without any of those. `run.py` turns what happens into events and carries the actions out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lockstep.evaluate import LeafResult, combine
from lockstep.generation import Generation, Member
from lockstep.wire import Message

# Events


@dataclass(frozen=True)
class Ready:
    """A worker has built its model, opened its data and can be a member."""

    worker: int
    address: str


@dataclass(frozen=True)
class Evaluation:
    """A worker has evaluated one leaf of the test set."""

    worker: int
    step: int
    leaf: int
    result: LeafResult


@dataclass(frozen=True)
class Checkpointed:
    step: int
    name: str
    digest: str
    reason: str | None


@dataclass(frozen=True)
class CheckpointFailed:
    step: int
    error: str
    reason: str | None


@dataclass(frozen=True)
class Finished:
    worker: int
    step: int
    digest: str


@dataclass(frozen=True)
class Raised:
    """User code, or ours, raised an exception in a worker."""

    worker: int
    message: str
    where: str
    user: bool
    """The message is a sentence for the user, not a traceback."""


@dataclass(frozen=True)
class Gone:
    """A process has ended, or its connection has."""

    worker: int
    how: str


@dataclass(frozen=True)
class CheckpointTime:
    """So much time has passed that a checkpoint is wanted."""


@dataclass(frozen=True)
class StopRequested:
    """Ctrl-C or a signal: end with a checkpoint."""

    reason: str


Event = Ready | Evaluation | Checkpointed | CheckpointFailed | Finished | Raised | Gone | CheckpointTime | StopRequested

# Actions


@dataclass(frozen=True)
class Send:
    worker: int
    message: Message


@dataclass(frozen=True)
class Record:
    """A row for `metrics.jsonl`."""

    row: dict[str, Any]


@dataclass(frozen=True)
class KeepCheckpoint:
    """A checkpoint is good and may be relied on; older ones may go."""

    step: int
    name: str
    digest: str


@dataclass(frozen=True)
class Warn:
    text: str


@dataclass(frozen=True)
class End:
    """The job is over; every process is to go."""

    outcome: Outcome


Action = Send | Record | KeepCheckpoint | Warn | End


@dataclass(frozen=True)
class Outcome:
    """How a job ended: `finished`, `stopped` (with a checkpoint) or `failed`."""

    state: str
    digest: str | None = None
    cause: str = ""
    worker: int | None = None
    """The worker that the cause is about."""
    user: bool = False
    """The cause is a sentence for the user."""
    died: bool = False
    """The worker ended without a word."""


@dataclass
class Machine:
    """Who is a member, what has been evaluated, and how the job ends."""

    num_workers: int
    num_leaves: int
    num_evaluation_leaves: int
    secret: str
    best: dict[str, Any] | None = None
    generation: Generation | None = None
    outcome: Outcome | None = None
    stopping: str | None = None
    _ready: dict[int, str] = field(default_factory=dict)
    _results: dict[int, dict[int, LeafResult]] = field(default_factory=dict)
    _finished: dict[int, str] = field(default_factory=dict)

    def handle(self, event: Event) -> list[Action]:
        """What to do about an event. Nothing more happens once the job is over."""
        if self.outcome is not None:
            return []
        match event:
            case Ready():
                return self._on_ready(event)
            case Evaluation():
                return self._on_evaluation(event)
            case Checkpointed():
                return self._on_checkpointed(event)
            case CheckpointFailed():
                return self._on_checkpoint_failed(event)
            case Finished():
                return self._on_finished(event)
            case Raised():
                place = "" if event.user or not event.where else f"{event.where}: "
                return self._end(Outcome("failed", None, f"{place}{event.message}", event.worker, event.user))
            case Gone():
                return self._on_gone(event)
            case CheckpointTime():
                return self._ask_for_checkpoint("time")
            case StopRequested():
                return self._on_stop(event)

    def _on_ready(self, event: Ready) -> list[Action]:
        self._ready[event.worker] = event.address
        if self.generation is not None or len(self._ready) < self.num_workers:
            return []
        members = tuple(Member(worker, self._ready[worker]) for worker in sorted(self._ready))
        self.generation = Generation(1, members, self.num_leaves, self.secret)
        announcement = {"type": "generation", "generation": self.generation.to_plain()}
        return [*self._send_all(announcement), *(self._ask_for_checkpoint("stop") if self.stopping else [])]

    def _on_evaluation(self, event: Evaluation) -> list[Action]:
        results = self._results.setdefault(event.step, {})
        known = results.setdefault(event.leaf, event.result)
        if known != event.result:
            return self._fail(f"leaf {event.leaf} of the test set was evaluated twice, with different results")
        if len(results) < self.num_evaluation_leaves:
            return []
        figures = combine(self._results.pop(event.step))
        if self.best is None or figures["top1"] > self.best["top1"]:
            self.best = {"top1": figures["top1"], "step": event.step}
        figures["best_top1"] = self.best["top1"]
        announcement = {"type": "evaluated", "step": event.step, "best": self.best}
        return [Record({"kind": "eval", "step": event.step, **figures}), *self._send_all(announcement)]

    def _on_checkpointed(self, event: Checkpointed) -> list[Action]:
        keep = KeepCheckpoint(event.step, event.name, event.digest)
        if event.reason == "stop":
            return [keep, *self._end(Outcome("stopped", event.digest, self.stopping or ""))]
        return [keep]

    def _on_checkpoint_failed(self, event: CheckpointFailed) -> list[Action]:
        text = f"the checkpoint of step {event.step} could not be written: {event.error}"
        if event.reason == "stop":
            return self._fail(f"stopping on {self.stopping}, but {text}")
        return [Warn(text)]

    def _on_finished(self, event: Finished) -> list[Action]:
        self._finished[event.worker] = event.digest
        assert self.generation is not None
        if len(self._finished) < len(self.generation):
            return []
        digests = set(self._finished.values())
        if len(digests) > 1:
            listing = ", ".join(f"worker {worker}: {digest[:12]}" for worker, digest in sorted(self._finished.items()))
            return self._fail(f"the replicas differ at the end, which must not happen ({listing})")
        return self._end(Outcome("finished", digests.pop()))

    def _on_gone(self, event: Gone) -> list[Action]:
        return self._end(Outcome("failed", None, event.how, event.worker, died=True))

    def _on_stop(self, event: StopRequested) -> list[Action]:
        if self.stopping is not None:
            return self._end(Outcome("stopped", None, event.reason))  # asked twice: at once, without a checkpoint
        self.stopping = event.reason
        return self._ask_for_checkpoint("stop")

    def _ask_for_checkpoint(self, reason: str) -> list[Action]:
        if self.generation is None:
            return []
        return [Send(self.generation.members[0].id, {"type": "checkpoint", "reason": reason})]

    def _send_all(self, message: Message) -> list[Action]:
        assert self.generation is not None
        return [Send(member.id, message) for member in self.generation.members]

    def _fail(self, cause: str) -> list[Action]:
        return self._end(Outcome("failed", None, cause))

    def _end(self, outcome: Outcome) -> list[Action]:
        self.outcome = outcome
        return [End(outcome)]
