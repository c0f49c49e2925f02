"""The supervisor's decisions as a pure state machine: events in, actions out. No socket, no process, no clock.

A simulator drives it through thousands of schedules. `run.py` turns what happens into events and carries actions out.

How a new generation comes about: the machine proposes a number to all live members; each promises not to finish
anything in an older generation, and says which step it is in and which leaves it holds; when all have promised (or
died), the machine knows the newest step, gives the missing leaves to the living, and announces the generation.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from lockstep.evaluate import LeafResult, combine
from lockstep.exchange import tree
from lockstep.generation import Generation, Member
from lockstep.supervisor.events import (
    Action,
    Checkpointed,
    CheckpointFailed,
    CheckpointTime,
    End,
    Evaluation,
    Event,
    Finished,
    Gone,
    Heartbeat,
    KeepCheckpoint,
    Kill,
    LostPeer,
    Outcome,
    Promised,
    Raised,
    Ready,
    Record,
    Resize,
    Send,
    Start,
    StopRequested,
    Tick,
    Warn,
)
from lockstep.wire import Message

PATIENCE_LEAVES = 20
"""A worker may take so many times the median leaf before it counts as stuck."""
LOST_GRACE_SECONDS = 1.0
"""How long after a lost connection a death may explain it, before someone is expelled for it."""
FINAL_TRIES = 3
"""How often the last checkpoint is tried."""
COMPUTING = ("data", "forward", "backward", "optimizer")
"""Spans in which a worker waits for nobody, so that standing still in one means being stuck."""


@dataclass
class Worker:
    """What the machine knows of a process."""

    address: str | None = None
    """None until it is ready."""
    step: int = -1
    """The step of the state it started from; -1 if it has none."""
    heard: float | None = None
    moved: float = 0.0
    place: tuple[int, int | None, str] = (-1, None, "setup")
    leaf_seconds: float | None = None


@dataclass
class Forming:
    """A generation that has been proposed and not yet announced."""

    number: int
    awaited: set[int]
    promises: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)


@dataclass
class Machine:
    """Who is a member, what has been evaluated, and how the job ends."""

    num_workers: int
    num_leaves: int
    num_evaluation_leaves: int
    secret: str
    last_step: int
    saves: bool = True
    """Whether the run must end with a checkpoint of its last step."""
    replace: bool = True
    patience: float = 10.0
    """Seconds without a heartbeat or progress after which a worker is expelled; more if leaves take long."""
    max_rapid_deaths: int = 4
    """Deaths per worker without a step in between that end the job: a crash loop heals by no restart."""
    best: dict[str, Any] | None = None
    evaluated: int = -1
    generation: Generation | None = None
    outcome: Outcome | None = None
    stopping: str | None = None
    deaths: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    """The living, by number."""
    _next: int = 0
    _number: int = 0
    _forming: Forming | None = None
    _results: dict[int, dict[int, LeafResult]] = field(default_factory=dict)
    _finished: dict[int, str] = field(default_factory=dict)
    _reports: dict[int, set[int]] = field(default_factory=dict)
    _reported_at: float | None = None
    _streak: list[str] = field(default_factory=list)
    """Causes of the deaths since the last progress."""
    _reached: int = -1
    _saved: int = -1
    _final_asked: bool = False
    _final_failures: int = 0

    def start(self) -> list[Action]:
        """Start as many workers as are wanted and not there."""
        actions: list[Action] = []
        while len(self.workers) < self.num_workers:
            self.workers[self._next] = Worker()
            actions.append(Start(self._next))
            self._next += 1
        return actions

    def handle(self, event: Event, now: float = 0.0) -> list[Action]:
        """What to do about an event. Nothing more happens once the job is over; the dead are not heard."""
        if self.outcome is not None:
            return []
        worker = getattr(event, "worker", None)
        if worker is not None and worker not in self.workers:
            return []
        match event:
            case Ready():
                return self._on_ready(event)
            case Promised():
                return self._on_promised(event)
            case Heartbeat():
                return self._on_heartbeat(event, now)
            case LostPeer():
                return self._on_lost_peer(event, now)
            case Tick():
                return self._on_tick(now)
            case Evaluation():
                return self._on_evaluation(event)
            case Checkpointed():
                return self._on_checkpointed(event)
            case CheckpointFailed():
                return self._on_checkpoint_failed(event)
            case Finished():
                self._finished[event.worker] = event.digest
                return self._end_if_finished()
            case Raised():
                place = "" if event.user or not event.where else f"{event.where}: "
                return self._end(Outcome("failed", None, f"{place}{event.message}", event.worker, event.user))
            case Gone():
                return self._on_gone(event)
            case CheckpointTime():
                return self._ask_for_checkpoint("time")
            case Resize():
                return self._on_resize(event)
            case StopRequested():
                return self._on_stop(event)

    # Membership

    @property
    def members(self) -> list[int]:
        """The living members of the newest generation, in order."""
        return [] if self.generation is None else [id_ for id_ in self.generation.ids if id_ in self.workers]

    def _on_ready(self, event: Ready) -> list[Action]:
        worker = self.workers[event.worker]
        worker.address, worker.step = event.address, event.step
        return self._propose()

    def _propose(self) -> list[Action]:
        """Ask the living members for a promise; without any, begin from what the ready workers have loaded."""
        members = self.members
        if not members:
            return self._begin()
        self._number += 1
        self._reports.clear()
        self._reported_at = None
        self._forming = Forming(self._number, set(members))
        return [Send(id_, {"type": "propose", "number": self._number}) for id_ in members]

    def _begin(self) -> list[Action]:
        """The first generation, or the first after everyone died: when all that are wanted are ready."""
        self._forming = None
        ready = sorted(id_ for id_, worker in self.workers.items() if worker.address is not None)
        if not ready or len(ready) < min(self.num_workers, len(self.workers)):
            return []
        self._number += 1
        self._finished.clear()
        newest = max(self.workers[id_].step for id_ in ready)
        return self._announce({id_: (self.workers[id_].step, ()) for id_ in ready if self.workers[id_].step == newest})

    def _on_promised(self, event: Promised) -> list[Action]:
        forming = self._forming
        if forming is None or event.number != forming.number:
            return []
        forming.promises[event.worker] = (event.step, tuple(event.held))
        return self._announce_if_promised()

    def _announce_if_promised(self) -> list[Action]:
        forming = self._forming
        if forming is None or any(id_ not in forming.promises for id_ in forming.awaited & set(self.workers)):
            return []
        promises = {id_: forming.promises[id_] for id_ in self.members}
        with_state = {id_: promise for id_, promise in promises.items() if promise[0] >= 0}
        if not with_state:
            return self._restart(list(promises))
        return self._announce(with_state)

    def _restart(self, joiners: list[int]) -> list[Action]:
        """Only joiners are left, and nobody can give them the state: new workers load the newest checkpoint."""
        self._forming = None
        for id_ in joiners:
            del self.workers[id_]
        kills: list[Action] = [Kill(id_) for id_ in joiners]
        if not self.replace and not self.workers:
            return kills + self._end_dead(joiners[0])
        return [*kills, *(self.start() if self.replace else []), *self._begin()]

    def _announce(self, promises: dict[int, tuple[int, tuple[int, ...]]]) -> list[Action]:
        """The new generation: who has a state stays, in order; then those who join."""
        self._forming = None
        step = max(step for step, _ in promises.values())
        assert min(s for s, _ in promises.values()) >= step - 1, f"members are more than a step apart: {promises}"
        stay = [id_ for id_ in self.members if id_ in promises] or sorted(promises)
        ready = [id_ for id_, worker in sorted(self.workers.items()) if worker.address is not None]
        joiners = [id_ for id_ in ready if id_ not in promises][: max(0, self.num_workers - len(stay))]
        ids = [*stay, *joiners]
        held = {id_: set(leaves) if at == step else set() for id_, (at, leaves) in promises.items()}
        leaves = self._share(ids, joiners, held, step)
        addresses = {id_: self.workers[id_].address or "" for id_ in ids}
        self.generation = Generation(
            number=self._number,
            members=tuple(Member(id_, addresses[id_]) for id_ in ids),
            num_leaves=self.num_leaves,
            secret=self.secret,
            step=step,
            first_leaves=tuple(tuple(sorted(leaves[id_])) for id_ in ids),
            behind=tuple(id_ for id_ in stay if promises[id_][0] < step),
            joiners=tuple(joiners),
            evaluated=self.evaluated,
            evaluated_leaves=tuple(sorted(self._results.get(step, {}))),
        )
        self._note_progress(step)
        self._final_asked = False  # whoever was asked may be dead
        for id_ in list(self._finished):
            if id_ not in ids:
                del self._finished[id_]
        announcement = {"type": "generation", "generation": self.generation.to_plain()}
        missing = sum(len(leaves[id_] - held.get(id_, set())) for id_ in ids)
        row = {
            "kind": "generation",
            "number": self._number,
            "step": step,
            "workers": len(ids),
            "missing_leaves": missing,
        }
        return [
            *self._send_all(announcement),
            Record(row),
            *(self._ask_for_checkpoint("stop") if self.stopping else []),
            *self._end_if_finished(),
        ]

    def _share(self, ids: list[int], joiners: list[int], held: dict[int, set[int]], step: int) -> dict[int, set[int]]:
        """The leaves of everyone in `step`: what is held stays, what is missing stays with whom it had been given to if
        that one lives, and the rest goes to whoever has the least to do."""
        before = self._plan_before(step)
        leaves = {id_: set(held.get(id_, ())) for id_ in ids}
        taken = set().union(*leaves.values())
        todo = dict.fromkeys(ids, 0)
        orphans = []
        for leaf in range(self.num_leaves):
            if leaf in taken:
                continue
            owner = before.get(leaf)
            if owner in todo:
                leaves[owner].add(leaf)
                todo[owner] += 1
            else:
                orphans.append(leaf)
        # Joiners have a state to copy first; they get a part only if there is nothing but work.
        fresh = all(not one for one in held.values())
        able = ids if fresh else [id_ for id_ in ids if id_ not in joiners]
        if fresh and not before:
            return dict(zip(ids, map(set, tree.share_leaves(self.num_leaves, len(ids))), strict=True))
        for leaf in orphans:
            least = min(able, key=lambda id_: todo[id_])
            leaves[least].add(leaf)
            todo[least] += 1
        return leaves

    def _plan_before(self, step: int) -> dict[int, int]:
        """Who was to compute which leaf of `step`."""
        if self.generation is None or not self.members:
            return {}
        shares = [(id_, self.generation.leaves(rank, step)) for rank, id_ in enumerate(self.generation.ids)]
        return {leaf: id_ for id_, leaves in shares for leaf in leaves}

    def _on_gone(self, event: Gone) -> list[Action]:
        if not event.is_death:
            return self._end(Outcome("failed", None, event.how, event.worker, died=True))
        return self._remove(event.worker, event.how)

    def _remove(self, worker: int, how: str, kill: bool = False) -> list[Action]:
        """A worker is no more: replace it, and let the others go on."""
        was_member = worker in self.members
        awaited = self._forming is not None and worker in self._forming.awaited
        del self.workers[worker]
        self._finished.pop(worker, None)
        self.deaths += 1
        self._streak.append(f"worker {worker} {how}")
        actions: list[Action] = [Record({"kind": "death", "worker": worker, "how": how, "step": self._reached})]
        if kill:
            actions.append(Kill(worker))
        if len(self._streak) > self.max_rapid_deaths * self.num_workers:
            cause = f"{len(self._streak)} deaths without a step in between; the first: {self._streak[0]}"
            return actions + self._end(Outcome("failed", None, cause, worker, died=True))
        if self.replace and len(self._finished) < self.num_workers:
            actions += self.start()
        if not self.workers:
            return actions + self._end_dead(worker)
        if awaited and self.members:
            return actions + self._announce_if_promised()
        if was_member or self.generation is None or not self.members:
            actions += self._propose()
        return actions

    def _end_dead(self, worker: int) -> list[Action]:
        cause = f"all workers are dead; the first cause: {self._streak[0]}"
        return self._end(Outcome("failed", None, cause, worker, died=True))

    def _on_resize(self, event: Resize) -> list[Action]:
        self.num_workers = event.workers
        actions: list[Action] = [Record({"kind": "resize", "workers": event.workers, "step": self._reached})]
        members = self.members
        # Members stay before those who are ready, and those before the ones that have only been started.
        by_use = sorted(self.workers, key=lambda id_: (id_ not in members, self.workers[id_].address is None, id_))
        surplus = by_use[event.workers :]
        for worker in surplus:
            del self.workers[worker]
            self._finished.pop(worker, None)
            actions.append(Kill(worker))
        return actions + (self._propose() if surplus else self.start())

    # Time

    def _note_progress(self, step: int) -> None:
        if step > self._reached:
            self._reached = step
            self._streak.clear()

    def _on_heartbeat(self, event: Heartbeat, now: float) -> list[Action]:
        worker = self.workers[event.worker]
        worker.heard = now
        place = (event.step, event.leaf, event.phase)
        if place != worker.place:
            worker.place, worker.moved = place, now
        worker.leaf_seconds = event.leaf_seconds
        if event.worker in self.members:
            self._note_progress(event.step)
        return []

    def _on_tick(self, now: float) -> list[Action]:
        known = [worker.leaf_seconds for worker in self.workers.values() if worker.leaf_seconds is not None]
        limit = max(self.patience, PATIENCE_LEAVES * statistics.median(known)) if known else self.patience
        actions: list[Action] = []
        for id_, worker in list(self.workers.items()):
            if id_ not in self.workers:
                continue  # gone with one that was removed before
            if worker.heard is not None and now - worker.heard > limit:
                actions += self._remove(id_, f"sent no heartbeat for {now - worker.heard:.0f} s", kill=True)
            elif worker.leaf_seconds is not None and worker.place[2] in COMPUTING and now - worker.moved > limit:
                actions += self._remove(id_, f"made no progress for {now - worker.moved:.0f} s", kill=True)
            if self.outcome is not None:
                return actions
        if self._reported_at is not None and now - self._reported_at > LOST_GRACE_SECONDS:
            actions += self._resolve_reports()
        return actions

    def _on_lost_peer(self, event: LostPeer, now: float) -> list[Action]:
        if self.generation is None or event.number != self.generation.number or self._forming is not None:
            return []
        self._reports.setdefault(event.worker, set()).update([] if event.peer is None else [event.peer])
        if self._reported_at is None:
            self._reported_at = now
        return []

    def _resolve_reports(self) -> list[Action]:
        """Nobody died, and yet members cannot reach each other: the one reported most goes, on a tie the newest."""
        counts = {id_: sum(id_ in peers for peers in self._reports.values()) for id_ in self.members}
        self._reported_at = None
        worst = max(counts, key=lambda id_: (counts[id_], id_), default=None)
        if worst is None or counts[worst] == 0 or len(self.members) == 1:
            return self._propose()
        return self._remove(worst, "could not be reached by its peers", kill=True)

    # Evaluation, checkpoints, the end

    def _on_evaluation(self, event: Evaluation) -> list[Action]:
        if event.step <= self.evaluated:
            return []
        results = self._results.setdefault(event.step, {})
        known = results.setdefault(event.leaf, event.result)
        if known != event.result:
            return self._fail(f"leaf {event.leaf} of the test set was evaluated twice, with different results")
        if len(results) < self.num_evaluation_leaves:
            return []
        figures = combine(self._results.pop(event.step))
        self.evaluated = event.step
        improved = self.best is None or figures["top1"] > self.best["top1"]
        if improved:
            self.best = {"top1": figures["top1"], "step": event.step}
        assert self.best is not None
        figures["best_top1"] = self.best["top1"]
        announcement = {"type": "evaluated", "step": event.step, "best": self.best}
        return [
            Record({"kind": "eval", "step": event.step, **figures}),
            # Asked for before the figures are sent, so that it is this step's state that is written.
            *(self._ask_for_checkpoint("best") if improved and self.saves else []),
            *self._send_all(announcement),
        ]

    def _on_checkpointed(self, event: Checkpointed) -> list[Action]:
        self._saved = max(self._saved, event.step)
        keep: list[Action] = [KeepCheckpoint(event.step, event.name, event.digest)]
        if event.reason == "stop":
            return keep + self._end(Outcome("stopped", event.digest, self.stopping or ""))
        return keep + self._end_if_finished()

    def _on_checkpoint_failed(self, event: CheckpointFailed) -> list[Action]:
        text = f"the checkpoint of step {event.step} could not be written: {event.error}"
        if event.reason == "stop":
            return self._fail(f"stopping on {self.stopping}, but {text}")
        if event.step == self.last_step:
            self._final_failures += 1
            if self._final_failures >= FINAL_TRIES:
                return self._fail(f"training is done, but {text}")
            return [Warn(f"{text}; trying again"), *self._ask_for_checkpoint("final")]
        return [Warn(f"{text}; training goes on")]

    def _end_if_finished(self) -> list[Action]:
        """The job is finished when every member is, with one digest, and the last checkpoint is safe."""
        members = self.members
        if self._forming is not None or not members or any(id_ not in self._finished for id_ in members):
            return []
        digests = set(self._finished.values())
        if len(digests) > 1:
            listing = ", ".join(f"worker {worker}: {digest[:12]}" for worker, digest in sorted(self._finished.items()))
            return self._fail(f"the replicas differ at the end, which must not happen ({listing})")
        if self.saves and self._saved < self.last_step:
            if self._final_asked:
                return []
            self._final_asked = True
            return self._ask_for_checkpoint("final")
        return self._end(Outcome("finished", digests.pop()))

    def _on_stop(self, event: StopRequested) -> list[Action]:
        if self.stopping is not None:
            return self._end(Outcome("stopped", None, event.reason))  # asked twice: at once, without a checkpoint
        self.stopping = event.reason
        return self._ask_for_checkpoint("stop")

    def _ask_for_checkpoint(self, reason: str) -> list[Action]:
        if not self.members:
            return []
        return [Send(self.members[0], {"type": "checkpoint", "reason": "stop" if self.stopping else reason})]

    def _send_all(self, message: Message) -> list[Action]:
        return [Send(id_, message) for id_ in self.members]

    def _fail(self, cause: str) -> list[Action]:
        return self._end(Outcome("failed", None, cause))

    def _end(self, outcome: Outcome) -> list[Action]:
        self.outcome = outcome
        return [End(outcome)]
