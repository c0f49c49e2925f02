"""Which processes a job has and should have, and what losing some of them has cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.engines import Role
from lockstep.generation import Member
from lockstep.supervisor import events as e
from lockstep.supervisor.forming import NO_STATE
from lockstep.supervisor.observer import Observer
from lockstep.supervisor.probes import Probe


@dataclass
class Process:
    """What is known of a living one."""

    is_placed: bool = False
    """Whether it has been started, or waits for room."""
    host: str = ""
    """Where it runs, if that is a host that joined: what is wrong there does not end the job."""
    address: str | None = None
    """None until it is ready."""
    step: int = NO_STATE
    """The step of the state it started from."""
    slot: int = 0
    """Which place it has among those of its role: the part of a server, the GPU of a worker. That of a lost one goes to
    its replacement."""
    probe: Probe | None = None


@dataclass
class Losses:
    """What misfortunes have cost so far."""

    deaths: int = 0
    joins: int = 0
    recomputed_leaves: int = 0
    seconds: float = 0.0
    """Time that steps with a change of members took beyond the usual."""
    dropped_leaves: int = 0
    """What came too late for its step, where that is dropped."""
    broken_images: int = 0
    """What could not be decoded, and was passed over."""


@dataclass
class Streak:
    """Deaths since training last moved on: too many are a crash loop, which heals by no restart."""

    reached: int = -1
    """The newest step that anyone was in."""
    causes: list[str] = field(default_factory=list)

    def note_progress(self, step: int) -> None:
        if step > self.reached:
            self.reached = step
            self.causes.clear()


@dataclass(kw_only=True)
class Roster:
    """The living by kind and number; numbers are never used twice."""

    num_workers: int
    num_servers: int = 0
    min_workers: int = 0
    """How many must be there to begin and to go on, while there is no room for the others; 0 means that the beginning
    waits for all, and going on for nobody."""
    workers: dict[int, Process] = field(default_factory=dict)
    servers: dict[int, Process] = field(default_factory=dict)
    evaluators: dict[int, Process] = field(default_factory=dict)
    observer: Observer | None = None
    """What the evaluator is at; None if there is to be none."""
    _next: int = 0

    def start(self) -> list[e.Action]:
        """Start whatever is wanted and not there."""
        actions: list[e.Action] = []
        kinds: tuple[tuple[Role, dict[int, Process], int], ...] = (
            ("worker", self.workers, self.num_workers),
            ("server", self.servers, self.num_servers),
            ("evaluator", self.evaluators, 0 if self.observer is None else 1),
        )
        for role, processes, wanted in kinds:
            while len(processes) < wanted:
                taken = {one.slot for one in processes.values()}
                slot = min(set(range(wanted)) - taken)
                processes[self._next] = Process(slot=slot)
                actions.append(e.Start(self._next, role, slot))
                self._next += 1
        return actions

    @property
    def everyone(self) -> dict[int, Process]:
        return {**self.workers, **self.servers, **self.evaluators}

    @property
    def placed(self) -> list[int]:
        """Those of whom something may be expected."""
        return [id_ for id_, process in self.everyone.items() if process.is_placed]

    @property
    def ready_workers(self) -> list[int]:
        return [id_ for id_, worker in self.workers.items() if worker.address is not None]

    @property
    def ready_evaluators(self) -> list[int]:
        return [id_ for id_, one in self.evaluators.items() if one.address is not None]

    @property
    def num_awaited(self) -> int:
        """How many workers the first generation waits for: with `min_workers`, not for those that find no room."""
        wanted = min(self.num_workers, len(self.workers))
        placed = sum(worker.is_placed for worker in self.workers.values())
        return max(self.min_workers, min(wanted, placed)) if self.min_workers else wanted

    @property
    def serving(self) -> tuple[Member, ...]:
        """The servers that are ready, in the order of what they own."""
        by_slot = sorted(self.servers.items(), key=lambda one: one[1].slot)
        return tuple(Member(id_, server.address) for id_, server in by_slot if server.address is not None)
