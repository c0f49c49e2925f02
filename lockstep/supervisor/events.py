"""What can happen to the supervisor (events), and what it can do about it (actions). Plain data; `machine` decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.engines import Role
from lockstep.evaluate import LeafResult
from lockstep.supervisor.probes import Probe
from lockstep.supervisor.verification import Replay, Report
from lockstep.wire import Message

STOP_COMMAND = "`lockstep stop`"
"""What a stop is said to come from that no signal has asked for."""

# Events


@dataclass(frozen=True)
class Placed:
    """The engine has found room for a process and has started it."""

    worker: int
    host: str = ""
    """Where, if that is a host that joined."""


@dataclass(frozen=True)
class Ready:
    """A worker has built its model, opened its data, loaded its state, and can be a member."""

    worker: int
    address: str
    step: int
    probe: Probe | None = None
    """None where bits do not matter, as for a mere evaluation."""


@dataclass(frozen=True)
class Promised:
    """A member finishes nothing in generations before `number`; this is where it stands."""

    worker: int
    number: int
    step: int
    """-1 if it has no state yet."""
    held: tuple[int, ...]


@dataclass(frozen=True)
class Heartbeat:
    worker: int
    step: int
    leaf: int | None
    phase: str
    leaf_seconds: float | None
    """How long a leaf usually takes there; None before its first one is done."""


@dataclass(frozen=True)
class LostPeer:
    """An exchange of generation `number` failed; `peer` is whom it failed with, if that is known."""

    worker: int
    number: int
    peer: int | None


@dataclass(frozen=True)
class Outrun:
    """A straggler of generation `number` is so far behind that nobody has the results it lacks."""

    worker: int
    number: int


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Evaluation:
    """A worker has evaluated one leaf of the test set."""

    worker: int
    step: int
    leaf: int
    result: LeafResult
    num_leaves: int | None = None
    """How many there are; None where the plan says it."""


@dataclass(frozen=True)
class Verify:
    """What a member of generation `number` found when its state was to be verified."""

    worker: int
    number: int
    step: int
    report: Report


@dataclass(frozen=True)
class Answer:
    """A member's second computation of what is disputed."""

    worker: int
    number: int
    step: int
    answer: Report | Replay


@dataclass(frozen=True)
class Delay:
    """A step in which the members changed took so much longer than usual."""

    worker: int
    number: int
    step: int
    seconds: float


@dataclass(frozen=True)
class Checkpointed:
    step: int
    name: str
    digest: str
    reason: str | None
    number: int
    """The generation in which its state was copied."""


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
    is_death: bool
    """By a signal, or without a word; a process that ends by itself with an error is no death but a mistake."""


@dataclass(frozen=True)
class Reached:
    """The first member has so many steps behind it."""

    worker: int
    step: int


@dataclass(frozen=True)
class CheckpointTime:
    """So much time has passed that a checkpoint is wanted."""


@dataclass(frozen=True)
class Resize:
    """Another number of workers is wanted."""

    workers: int
    here: int | None = None
    """How many of them on this host, where others may join."""


@dataclass(frozen=True)
class Joined:
    """A host has room for so many workers more."""

    host: str
    slots: int


@dataclass(frozen=True)
class Left:
    """A host that had joined is gone, with its workers."""

    host: str
    workers: tuple[int, ...]
    room: int
    """How many workers fit on those that are left."""
    is_loss: bool
    """Whether it went without a word."""


@dataclass(frozen=True)
class StopRequested:
    """Ctrl-C, a signal or `lockstep stop`: end with a checkpoint."""

    reason: str


Event = (
    Placed
    | Ready
    | Promised
    | Heartbeat
    | LostPeer
    | Outrun
    | Tick
    | Evaluation
    | Verify
    | Answer
    | Delay
    | Checkpointed
    | CheckpointFailed
    | Finished
    | Raised
    | Gone
    | Reached
    | CheckpointTime
    | Resize
    | Joined
    | Left
    | StopRequested
)

# Actions


@dataclass(frozen=True)
class Start:
    """Start a process under this number."""

    worker: int
    role: Role = "worker"
    slot: int = 0
    """Which place it has among those of its role; that of a lost one goes to its replacement."""


@dataclass(frozen=True)
class Kill:
    """End a worker that has been expelled, or is one too many."""

    worker: int


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
class DiscardCheckpoint:
    """A checkpoint that came too late: the run has gone back behind it, and its bits are wrong."""

    name: str
    digest: str


@dataclass(frozen=True)
class Trust:
    """Everything up to this step is verified."""

    step: int


@dataclass(frozen=True)
class RollBack:
    """Nothing that was written after this step counts any more."""

    step: int


@dataclass(frozen=True)
class Adopt:
    """This is what the run computes, to be remembered for later sessions."""

    probe: Probe


@dataclass(frozen=True)
class Warn:
    text: str


@dataclass(frozen=True)
class Tell:
    """A line for whoever watches."""

    text: str


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


@dataclass(frozen=True)
class End:
    """The job is over; every process is to go."""

    outcome: Outcome


Action = (
    Start | Kill | Send | Record | KeepCheckpoint | DiscardCheckpoint | Trust | RollBack | Adopt | Warn | Tell | End
)
