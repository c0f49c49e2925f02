"""The supervisor's decisions as a pure state machine: events in, actions out. No socket, no process, no clock.

A simulator drives it through thousands of schedules. `run.py` turns what happens into events and carries actions out.

How a new generation comes about: the machine proposes a number to all live members; each promises not to finish
anything in an older generation, and says which step it is in and which leaves it holds; when all have promised (or
died), the machine knows the newest step, gives the missing leaves to the living, and announces the generation.

Which processes there are is in `roster`. What it needs to know of time is in `watch`, of evaluations in `scores`, of
checkpoints in `saving`, of silent corruption in `verification`, of processes that compute other bits in `probes`, of
the evaluator in `observer`; `forming` puts a generation together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lockstep.generation import Generation, Member
from lockstep.rounds import EVERY_STEP, Rounds
from lockstep.supervisor import events as e
from lockstep.supervisor import probes
from lockstep.supervisor.forming import NO_STATE, Forming, Promise, form
from lockstep.supervisor.observer import Good, Observer
from lockstep.supervisor.probes import Probe
from lockstep.supervisor.roster import Losses, Roster, Streak
from lockstep.supervisor.saving import RETRY_SECONDS, Remedy, Saving
from lockstep.supervisor.scores import Contradiction, Scores
from lockstep.supervisor.verification import Agreed, Disputed, Undecided, Unnamed, Verdict, Verification, Wrong
from lockstep.supervisor.watch import Watch
from lockstep.wire import Message


@dataclass(kw_only=True)
class Machine(Roster):
    """Who is a member, what has been evaluated, and how the job ends."""

    num_leaves: int
    secret: str
    saving: Saving
    scores: Scores
    servers_hold_state: bool = False
    """Whether nothing goes on without all of them; what a worker lacks it gets from them."""
    replace: bool = True
    is_elastic: bool = True
    """Whether training goes on without the dead; otherwise it ends with the first death, after a checkpoint."""
    watch: Watch = field(default_factory=lambda: Watch(10.0))
    verification: Verification | None = None
    """None if nothing is verified."""
    probe: Probe | None = None
    """What every worker must compute; None until the first generation decides it."""
    allow_mixed: bool = False
    """Whether workers whose arithmetic differs may take part."""
    max_rapid_deaths: int = 4
    """Deaths per worker without a step in between that end the job: a crash loop heals by no restart."""
    rounds: Rounds = EVERY_STEP
    generation: Generation | None = None
    outcome: e.Outcome | None = None
    stopping: str | None = None
    losses: Losses = field(default_factory=Losses)
    observer: Observer | None = None
    """What the evaluator is at; None if there is to be none."""
    _number: int = 0
    _forming: Forming | None = None
    _causes: list[str] = field(default_factory=list)
    """Why the next generation is formed."""
    _going_back: bool = False
    """Whether the next generation begins at the last verified snapshot."""
    _finished: dict[int, str] = field(default_factory=dict)
    _streak: Streak = field(default_factory=Streak)
    _lost_servers: int = 0
    _doom: e.Outcome | None = None
    """How the job will end as soon as a checkpoint is written."""

    def __post_init__(self) -> None:
        self.num_evaluators = 0 if self.observer is None else 1

    def handle(self, event: e.Event, now: float = 0.0) -> list[e.Action]:
        """What to do about an event. Nothing more happens once the job is over; the dead are not heard."""
        if self.outcome is not None:
            return []
        worker = getattr(event, "worker", None)
        if worker in self.servers:
            return self._hear_server(worker, event, now)
        if worker in self.evaluators and self.observer is not None:
            return self._hear_evaluator(self.observer, worker, event, now)
        if worker is not None and worker not in self.workers:
            return []
        match event:
            case e.Placed():
                self.workers[event.worker].is_placed = True
                self.workers[event.worker].host = event.host
                return []
            case e.Ready():
                return self._on_ready(event)
            case e.Promised():
                return self._on_promised(event)
            case e.Heartbeat():
                return self._on_heartbeat(event, now)
            case e.LostPeer():
                return self._on_lost_peer(event, now)
            case e.Outrun():
                return self._on_outrun(event)
            case e.Tick():
                return self._on_tick(now)
            case e.Delay():
                self.losses.seconds += event.seconds
                row = {"kind": "recovery", "generation": event.number, "step": event.step, "seconds": event.seconds}
                return [e.Record(row)]
            case e.Evaluation():
                return self._on_evaluation(event)
            case e.Verify() | e.Answer():
                return self._on_verification(event)
            case e.Checkpointed():
                return self._on_checkpointed(event)
            case e.CheckpointFailed():
                return self._on_checkpoint_failed(event, now)
            case e.Finished():
                self._finished[event.worker] = event.digest
                return self._end_if_finished()
            case e.Raised():
                return self._on_raised(event)
            case e.Gone():
                return self._on_gone(event)
            case e.CheckpointTime():
                return self._ask_for_checkpoint("time")
            case e.Resize():
                return self._on_resize(event)
            case e.Joined():
                return self._on_joined(event)
            case e.Left():
                return self._on_left(event)
            case e.StopRequested():
                return self._on_stop(event)

    # Servers: they have no state, so whoever dies is replaced, and its slices move

    def _hear_server(self, server: int, event: e.Event, now: float) -> list[e.Action]:
        match event:
            case e.Placed():
                self.servers[server].is_placed = True
            case e.Ready():
                self.servers[server].address = event.address
                self._causes.append("server")
                return self._propose()
            case e.Heartbeat():
                self.watch.heard(server, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
            case e.Raised():
                return self._end(e.Outcome("failed", None, event.message, server, event.user))
            case e.Gone() if event.is_death:
                return self._remove_server(server, event.how)
            case e.Gone():
                return self._end(e.Outcome("failed", None, event.how, server, died=True))
        return []

    def _remove_server(self, server: int, how: str, kill: bool = False) -> list[e.Action]:
        """The slices of a server that is gone move to the others; without any, the workers add up by themselves."""
        del self.servers[server]
        self.watch.forget(server)
        actions = self._mourn(server, "server", how, kill)
        if self.outcome is not None:
            return actions
        self._lost_servers += 1
        if self.servers_hold_state and not self.replace:
            hint = "; without --no-replace it is replaced" if self.is_elastic else ""
            cause = f"{how}, and with it a part of the weights{hint}"
            return actions + self._end(e.Outcome("failed", None, cause, server, died=True))
        was_member = self.generation is not None and server in [member.id for member in self.generation.servers]
        return actions + (self._propose() if was_member or not self.members else [])

    def _mourn(self, id_: int, role: str, how: str, kill: bool) -> list[e.Action]:
        """A process is dead: count it, start another one, and give up where that heals nothing."""
        self.losses.deaths += 1
        self._streak.causes.append(f"{role} {id_} {how}")
        self._causes.append("death")
        marks = {} if self.is_elastic else {"fatal": True}
        actions: list[e.Action] = [self._record("death", worker=id_, role=role, how=how, **marks)]
        if kill:
            actions.append(e.Kill(id_))
        if not self.is_elastic:
            return actions + self._end_after(id_, how)
        causes = self._streak.causes
        if len(causes) > self.max_rapid_deaths * (self.num_workers + self.num_servers):
            cause = f"{len(causes)} deaths without a step in between; the first: {causes[0]}"
            return actions + self._end(e.Outcome("failed", None, cause, id_, died=True))
        return actions + (self.start() if self.replace and len(self._finished) < self.num_workers else [])

    def _end_after(self, id_: int, how: str) -> list[e.Action]:
        """Whoever started the processes ends the others too, or starts all of them anew: save what there is."""
        if self.stopping is None and self._doom is None:
            self._doom = e.Outcome("failed", None, how, id_, died=True)
        if self.generation is None:
            return self._end(self._doom or e.Outcome("stopped", None, self.stopping or ""))
        return self._ask_for_checkpoint("stop")

    # The evaluator: nobody waits for it, and training goes on without it

    def _hear_evaluator(self, observer: Observer, id_: int, event: e.Event, now: float) -> list[e.Action]:
        match event:
            case e.Placed():
                self.evaluators[id_].is_placed = True
            case e.Ready():
                self.evaluators[id_].address = event.address
                return self._ask_evaluator(observer)
            case e.Heartbeat():
                self.watch.heard(id_, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
            case e.Evaluation():
                results = observer.add(event.step, event.leaf, event.result)
                if results is not None:
                    row = {"kind": "eval", "step": event.step, **self.scores.rate(event.step, results)}
                    return [e.Record(row), *self._ask_evaluator(observer), *self._end_if_finished()]
            case e.Raised():
                return self._lose_evaluator(observer, id_, event.message.strip().splitlines()[-1], for_good=True)
            case e.Gone():
                return self._lose_evaluator(observer, id_, f"it {event.how}", for_good=False)
        return []

    def _ask_evaluator(self, observer: Observer) -> list[e.Action]:
        ready = self.ready_evaluators
        good = observer.take() if ready else None
        return [] if good is None else [e.Send(ready[0], {"type": "evaluate", "step": good.step, "name": good.name})]

    def _lose_evaluator(self, observer: Observer, id_: int, why: str, for_good: bool) -> list[e.Action]:
        del self.evaluators[id_]
        self.watch.forget(id_)
        goes_on = observer.fail() and not for_good
        if not goes_on:
            self.observer, self.num_evaluators = None, 0
        text = f"evaluator {id_} is gone ({why})" + ("" if goes_on else "; training goes on without one")
        return [e.Kill(id_), e.Warn(text), *(self.start() if goes_on else []), *self._end_if_finished()]

    def _is_observing(self) -> bool:
        """Whether the evaluator is still at what it was given: the end of the job waits for that, and nothing else."""
        return self.observer is not None and bool(self.ready_evaluators) and not self.observer.is_idle

    # Membership

    @property
    def members(self) -> list[int]:
        """The living members of the newest generation, in order."""
        return [] if self.generation is None else [id_ for id_ in self.generation.ids if id_ in self.workers]

    @property
    def bests(self) -> list[dict[str, Any]]:
        """The best evaluation, and the one that would be the best again after going back."""
        known = [self.scores.best, self.verification.scores[1] if self.verification is not None else None]
        return [best for best in known if best is not None]

    def _on_ready(self, event: e.Ready) -> list[e.Action]:
        worker = self.workers[event.worker]
        worker.address, worker.step, worker.probe = event.address, event.step, event.probe
        actions = self._check_probes([event.worker])
        if self.outcome is not None:
            return actions
        if event.worker not in self.workers:  # refused; perhaps it was the last one that was waited for
            return actions + self._propose_if_none()
        self._causes.append("join")
        return actions + self._propose()

    def _check_probes(self, ids: list[int]) -> list[e.Action]:
        """Refuse those whose arithmetic is not that of the run, or mark the run as mixed."""
        actions: list[e.Action] = []
        for id_ in ids:
            mine = self.workers[id_].probe
            if self.probe is None or mine is None or mine.digest == self.probe.digest:
                continue
            what, is_guest = probes.describe_difference(mine, self.probe), bool(self.workers[id_].host)
            if self.allow_mixed:
                actions += [
                    self._record("mixed", worker=id_, what=what),
                    e.Warn(f"worker {id_} computes other bits than this run: {what}; --allow-mixed lets it take part"),
                ]
                continue
            actions += self._refuse(id_, f"it computes other bits than this run: {what}")
            if not self.workers and not is_guest:
                sentence = (
                    f"worker {id_} computes other bits than this run: {what}; train it where it began, start a new "
                    "run, or give --allow-mixed and lose the promise of one digest"
                )
                return actions + self._end(e.Outcome("failed", None, sentence, id_, user=True))
        return actions

    def _refuse(self, worker: int, why: str) -> list[e.Action]:
        """Go on without a process that cannot take part; another one like it could not either, so none is started."""
        where = f" on {host}" if (host := self.workers[worker].host) else ""
        self._drop(worker)
        self.num_workers -= 1
        return [
            self._record("refused", worker=worker, what=why),
            e.Warn(
                f"worker {worker}{where} is refused, because {why}" + ("; the others go on" if self.workers else "")
            ),
            e.Kill(worker),
        ]

    def _is_dispensable(self, worker: int) -> bool:
        """A process that has not come so far as to be a member, while others are, or may be."""
        return worker not in self.members and (bool(self.members) or bool(self.workers[worker].host))

    def _on_raised(self, event: e.Raised) -> list[e.Action]:
        if self._is_dispensable(event.worker):
            why = f"it cannot set itself up: {event.message.strip().splitlines()[-1]}"
            return self._refuse(event.worker, why) + self._propose_if_none()
        place = "" if event.user or not event.where else f"{event.where}: "
        return self._end(e.Outcome("failed", None, f"{place}{event.message}", event.worker, event.user))

    def _propose_if_none(self) -> list[e.Action]:
        """Begin, if only the one that was refused was waited for."""
        return [] if self.members else self._propose()

    def _propose(self) -> list[e.Action]:
        """Ask the living members for a promise; without any, begin from what the ready workers have loaded."""
        members = self.members
        if not members:
            return self._begin()
        self._number += 1
        self.watch.clear_reports()
        self._forming = Forming(self._number, set(members))
        return [e.Send(id_, {"type": "propose", "number": self._number}) for id_ in members]

    def _begin(self) -> list[e.Action]:
        """The first generation, or the first after everyone died: when all that are wanted are ready."""
        self._forming = None
        ready = sorted(self.ready_workers)
        if not ready or len(ready) < self.num_awaited:
            return []
        if any(server.address is None for server in self.servers.values()):
            return []
        actions: list[e.Action] = []
        if self.probe is None and (known := [p for id_ in ready if (p := self.workers[id_].probe) is not None]):
            self.probe = probes.most_common(known)
            actions = [e.Adopt(self.probe), *self._check_probes(ready)]
            ready = [id_ for id_ in ready if id_ in self.workers]
        self._number += 1
        self._finished.clear()
        self._causes = ["start"]
        self._going_back = False
        newest = max(self.workers[id_].step for id_ in ready)
        holders = [id_ for id_ in ready if self.workers[id_].step == newest]
        if self.verification is not None:
            if self.generation is not None:
                # Everyone died, and whatever was not verified may have been wrong: that is done again.
                actions.append(self._go_back(self.verification))
            self.verification.begin(newest, holders, (self.scores.evaluated, self.scores.best))
            actions.append(e.Trust(newest))
        return actions + self._announce(dict.fromkeys(holders, (newest, ())))

    @property
    def has_too_few(self) -> bool:
        """Whether those who are left wait for others to come."""
        return len(self.ready_workers) < self.min_workers and self.replace and not self._finished

    def _on_promised(self, event: e.Promised) -> list[e.Action]:
        forming = self._forming
        if forming is None or event.number != forming.number:
            return []
        forming.promises[event.worker] = (event.step, tuple(event.held))
        return self._announce_if_promised()

    def _announce_if_promised(self) -> list[e.Action]:
        forming = self._forming
        if forming is None or any(id_ not in forming.promises for id_ in forming.awaited & set(self.workers)):
            return []
        promises = {id_: forming.promises[id_] for id_ in self.members}
        with_state = {id_: promise for id_, promise in promises.items() if promise[0] != NO_STATE}
        if self._going_back and self.verification is not None:
            back: Promise = (self.verification.verified, ())
            with_state = dict.fromkeys((id_ for id_ in with_state if id_ in self.verification.holders), back)
        if not with_state:
            return self._restart(list(promises))
        if self.has_too_few:
            return []  # whoever becomes ready makes a new proposal
        return self._announce(with_state)

    def _restart(self, members: list[int]) -> list[e.Action]:
        """Nobody is left who could give the others the state: new workers load the newest checkpoint."""
        self._forming = None
        actions: list[e.Action] = []
        for id_ in members:
            self._drop(id_)
            actions.append(e.Kill(id_))
        actions += self._go_back_if_due()
        if not self.replace and not self.workers:
            return actions + self._end_dead(members[0])
        return [*actions, *(self.start() if self.replace else []), *self._begin()]

    def _go_back_if_due(self) -> list[e.Action]:
        if not self._going_back or self.verification is None:
            return []
        return [self._go_back(self.verification)]

    def _go_back(self, verification: Verification) -> e.RollBack:
        """Nothing that came after the last verified snapshot counts."""
        self.scores.go_back(*verification.scores)
        self.saving.go_back(self._number, verification.verified)
        if self.observer is not None:
            self.observer.go_back(verification.verified)
        self._finished.clear()
        return e.RollBack(verification.verified)

    def _announce(self, promises: dict[int, Promise]) -> list[e.Action]:
        """The new generation: who has a state stays, in order; then those who join."""
        self._forming = None
        actions = self._go_back_if_due()
        newest = max(step for step, _ in promises.values())
        before = {} if self._going_back else self._plan_before(newest)
        if self.servers_hold_state:
            promises, before = dict.fromkeys(promises, (newest, ())), {}
        formed = form(
            promises,
            self.members,
            self.ready_workers,
            self.num_workers,
            before,
            self.workers,
            self.num_leaves,
            self.rounds,
        )
        step, ids, joiners = formed.step, formed.ids, formed.joiners
        self.scores.forget_after(step)
        self.generation = Generation(
            number=self._number,
            members=tuple(Member(id_, self.workers[id_].address or "") for id_ in ids),
            num_leaves=self.num_leaves,
            secret=self.secret,
            step=step,
            first_leaves=tuple(tuple(sorted(formed.leaves[id_])) for id_ in ids),
            behind=tuple(id_ for id_ in formed.stay if promises[id_][0] < step),
            joiners=tuple(joiners),
            servers=self.serving,
            evaluated=self.scores.evaluated,
            evaluated_leaves=self.scores.known_leaves(step),
            best=self.scores.best,
            verified=NO_STATE if self.verification is None else self.verification.verified,
            goes_back=self._going_back,
        )
        self._streak.note_progress(step)
        self.losses.joins += len(joiners)
        self.losses.recomputed_leaves += formed.num_recomputed
        self._finished = {id_: digest for id_, digest in self._finished.items() if id_ in ids}
        if self.verification is not None:
            self.verification.reset()
            if step == self.verification.verified:
                self.verification.holders.update(joiners)  # what they copy is the verified state
        row = {
            "kind": "generation",
            "number": self._number,
            "step": step,
            "workers": len(ids),
            **({"servers": len(self.generation.servers)} if self.num_servers else {}),
            "joined": joiners,
            "causes": sorted(set(self._causes)),
            "missing_leaves": formed.num_missing,
            "recomputed_leaves": formed.num_recomputed,
        }
        self._causes, self._going_back = [], False
        return [
            *actions,
            # Whoever was asked for a checkpoint may be dead. The new one hears of it before it may go on.
            *(self._ask_for_checkpoint(self.saving.asked) if self.saving.asked is not None else []),
            *self._send_all({"type": "generation", "generation": self.generation.to_plain()}, also_servers=True),
            e.Record(row),
            *self._end_if_finished(),
        ]

    def _plan_before(self, step: int) -> dict[int, int]:
        """Who was to compute which leaf of `step`."""
        if self.generation is None or not self.members:
            return {}
        shares = [(id_, self.generation.leaves(rank, step)) for rank, id_ in enumerate(self.generation.ids)]
        return {leaf: id_ for id_, leaves in shares for leaf in leaves}

    def _on_gone(self, event: e.Gone) -> list[e.Action]:
        if not event.is_death and self._is_dispensable(event.worker):
            return self._refuse(event.worker, f"it {event.how}") + self._propose_if_none()
        if not event.is_death:
            return self._end(e.Outcome("failed", None, event.how, event.worker, died=True))
        return self._remove(event.worker, event.how)

    def _drop(self, worker: int) -> None:
        del self.workers[worker]
        self._finished.pop(worker, None)
        self.watch.forget(worker)

    def _remove(self, worker: int, how: str, kill: bool = False) -> list[e.Action]:
        """A worker is no more: replace it, and let the others go on."""
        was_member = worker in self.members
        awaited = self._forming is not None and worker in self._forming.awaited
        self._drop(worker)
        actions = self._mourn(worker, "worker", how, kill)
        if self.outcome is not None:
            return actions
        if not self.workers:
            return actions + self._end_dead(worker)
        return actions + self._go_on(was_member, awaited)

    def _go_on(self, was_member: bool, awaited: bool) -> list[e.Action]:
        """Without someone who was a member, or whose promise was awaited."""
        if awaited and self.members:
            return self._announce_if_promised()
        if was_member or self.generation is None or not self.members:
            return self._propose()
        return []

    def _end_dead(self, worker: int) -> list[e.Action]:
        first = self._streak.causes[0] if self._streak.causes else "nobody is left who has the verified state"
        cause = f"all workers are dead; the first cause: {first}"
        return self._end(e.Outcome("failed", None, cause, worker, died=True))

    def _on_resize(self, event: e.Resize) -> list[e.Action]:
        self.num_workers = event.workers
        self._causes.append("resize")
        actions: list[e.Action] = [self._record("resize", workers=event.workers)]
        members = self.members
        # Members stay before those who are ready, and those before the ones that have only been started.
        by_use = sorted(self.workers, key=lambda id_: (id_ not in members, self.workers[id_].address is None, id_))
        surplus = by_use[event.workers :]
        for worker in surplus:
            self._drop(worker)
            actions.append(e.Kill(worker))
        return actions + (self._propose() if surplus else self.start())

    def _on_joined(self, event: e.Joined) -> list[e.Action]:
        """As many more workers as there are leaves for; beyond that the room is spare."""
        wanted = self.num_workers if self.replace else len(self.workers)
        self.num_workers = min(wanted + event.slots, self.num_leaves)
        return [self._record("host", host=event.host, what="joined", slots=event.slots), *self.start()]

    def _on_left(self, event: e.Left) -> list[e.Action]:
        """Its workers are replaced only where there was room to spare. A loss is a death, but never one of a crash
        loop; if nobody is left, the next host that joins goes on."""
        gone = [id_ for id_ in event.workers if id_ in self.workers]
        self.num_workers = min(self.num_workers, event.room)
        waiting = [id_ for id_, worker in self.workers.items() if not worker.is_placed and id_ not in gone]
        gone += waiting[: max(0, len(self.workers) - len(gone) - self.num_workers)]
        actions: list[e.Action] = [self._record("host", host=event.host, what="lost" if event.is_loss else "left")]
        was_member = not set(gone).isdisjoint(self.members)
        awaited = self._forming is not None and not self._forming.awaited.isdisjoint(gone)
        for id_ in gone:
            if event.is_loss and self.workers[id_].address is not None:
                self.losses.deaths += 1
                how = f"was lost with its host {event.host}"
                actions.append(self._record("death", worker=id_, role="worker", how=how))
            self._drop(id_)
            actions.append(e.Kill(id_))
        if gone:
            self._causes.append("death" if event.is_loss else "leave")
            actions += self.start() if self.replace and len(self._finished) < self.num_workers else []
            actions += self._go_on(was_member, awaited)
        if not self.workers and self.stopping is not None:
            actions += self._end(e.Outcome("stopped", None, self.stopping))
        return actions

    # Time

    def _on_heartbeat(self, event: e.Heartbeat, now: float) -> list[e.Action]:
        self.watch.heard(event.worker, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
        if event.worker in self.members:
            self._streak.note_progress(event.step)
        return []

    def _on_tick(self, now: float) -> list[e.Action]:
        actions: list[e.Action] = []
        for id_, how in self.watch.stuck(self.placed, now).items():
            if id_ in self.workers:  # and not gone with one that was removed before
                actions += self._remove(id_, how, kill=True)
            elif id_ in self.servers:
                actions += self._remove_server(id_, how, kill=True)
            elif id_ in self.evaluators and self.observer is not None:
                actions += self._lose_evaluator(self.observer, id_, f"it {how}", for_good=False)
            if self.outcome is not None:
                return actions
        if self.watch.has_unexplained_reports(now):
            actions += self._resolve_reports()
        if self.saving.is_retry_due(now):
            actions += self._ask_for_checkpoint("retry")
        return actions

    def _on_lost_peer(self, event: e.LostPeer, now: float) -> list[e.Action]:
        if self.generation is not None and event.number == self.generation.number and self._forming is None:
            self.watch.report(event.worker, event.peer, now)
        return []

    def _on_outrun(self, event: e.Outrun) -> list[e.Action]:
        """It copies the state like one that joins, and for that there must be a new generation."""
        if self.generation is None or event.number != self.generation.number or self._forming is not None:
            return []
        self._causes.append("straggler")
        return self._propose()

    def _resolve_reports(self) -> list[e.Action]:
        """Nobody died, and yet members cannot reach each other: the one reported most goes, on a tie the newest."""
        worst = self.watch.most_reported([*self.members, *self.servers])
        if worst in self.servers and 2 * len(accusers := self.watch.accusers(worst)) < len(self.members):
            worst = max(accusers)  # most of the others reach it
        self.watch.clear_reports()
        if worst in self.servers:
            return self._remove_server(worst, "could not be reached by the workers", kill=True)
        if worst is None or len(self.members) == 1:
            return self._propose()
        return self._remove(worst, "could not be reached by its peers", kill=True)

    # Evaluation, verification

    def _on_evaluation(self, event: e.Evaluation) -> list[e.Action]:
        before = self.scores.best
        try:
            figures = self.scores.add(event.step, event.leaf, event.result)
        except Contradiction as problem:
            # With verification it will be found whose bits were wrong, and these figures dropped.
            # A server that lost its weights in the midst of an evaluation leaves different ones to different workers.
            is_bug = self.verification is None and not (self.servers_hold_state and self._lost_servers)
            return self._fail(str(problem)) if is_bug else []
        if figures is None:
            return []
        improved = self.scores.best != before
        return [
            e.Record({"kind": "eval", "step": event.step, **figures}),
            # Asked for before the figures are sent, so that it is this step's state that is written.
            *(self._ask_for_checkpoint("best") if improved and self.saving.required else []),
            *self._send_all({"type": "evaluated", "step": event.step, "best": self.scores.best}),
        ]

    def _on_verification(self, event: e.Verify | e.Answer) -> list[e.Action]:
        if self.verification is None or self.generation is None or self._forming is not None:
            return []
        if event.number != self.generation.number:
            return []
        if isinstance(event, e.Verify):
            verdict = self.verification.report(event.worker, event.report, self.members)
        else:
            verdict = self.verification.answer(event.worker, event.answer, self.members)
        return [] if verdict is None else self._on_verdict(self.verification, verdict, event.step)

    def _on_verdict(self, verification: Verification, verdict: Verdict, step: int) -> list[e.Action]:
        match verdict:
            case Agreed():
                verification.begin(step, self.members, (self.scores.evaluated, self.scores.best))
                return [e.Trust(step), *self._send_all({"type": "verified", "step": step})]
            case Disputed():
                return self._send_all(verdict.message)
            case Undecided():
                return self._fail(f"at step {step} {verdict.sentence}: look at the hardware")
            case Unnamed():
                self._going_back = True
                self._causes.append("corruption")
                why = "the states of the members differ, and it cannot be said whose is wrong"
                row = {"kind": "corruption", "worker": None, "why": why, "step": step}
                return [e.Record(row), *self._propose()]
            case Wrong():
                self._going_back = True
                actions: list[e.Action] = []
                for id_, why in verdict.members.items():
                    actions.append(e.Record({"kind": "corruption", "worker": id_, "why": why, "step": step}))
                    if id_ in self.workers and self.outcome is None:
                        how = f"computed wrong bits ({why}) and was expelled; back to step {verification.verified}"
                        actions += self._remove(id_, how, kill=True)
                return actions

    # Checkpoints, the end

    def _on_checkpointed(self, event: e.Checkpointed) -> list[e.Action]:
        if not self.saving.written(event):
            return [e.DiscardCheckpoint(event.name, event.digest)]
        keep: list[e.Action] = [e.KeepCheckpoint(event.step, event.name, event.digest)]
        if event.reason == "stop":
            return keep + self._end(self._doom or e.Outcome("stopped", event.digest, self.stopping or ""))
        if self.observer is not None and event.step < self.saving.last_step:  # the workers evaluate the last one
            self.observer.offer(Good(event.step, event.name))
            keep += self._ask_evaluator(self.observer)
        return keep + self._end_if_finished()

    def _on_checkpoint_failed(self, event: e.CheckpointFailed, now: float) -> list[e.Action]:
        text = f"the checkpoint of step {event.step} could not be written: {event.error}"
        match self.saving.failed(event, now):
            case Remedy.GIVE_UP if self._doom is not None:
                return [e.Warn(text), *self._end(self._doom)]
            case Remedy.GIVE_UP:
                when = "training is done" if event.reason != "stop" else f"stopping on {self.stopping}"
                return self._fail(f"{when}, but {text}")
            case Remedy.AT_ONCE:
                return [e.Warn(f"{text}; trying again"), *self._ask_for_checkpoint("final")]
            case Remedy.LATER:
                return [e.Warn(f"{text}; training goes on, and it is tried again in {RETRY_SECONDS:.0f} s")]

    def _end_if_finished(self) -> list[e.Action]:
        """The job is finished when every member is, with one digest, and the last checkpoint is safe."""
        members = self.members
        if self._forming is not None or not members or any(id_ not in self._finished for id_ in members):
            return []
        digests = {self._finished[id_] for id_ in members}
        if self.servers_hold_state and self._lost_servers:
            digests = {self._finished[members[0]]}  # the others may have got theirs before a server was lost, or after
        if len(digests) > 1:
            listing = ", ".join(f"worker {worker}: {digest[:12]}" for worker, digest in sorted(self._finished.items()))
            return self._fail(f"the replicas differ at the end, which must not happen ({listing})")
        if not self.saving.is_complete:
            return [] if self.saving.asked in ("final", "stop") else self._ask_for_checkpoint("final")
        return [] if self._is_observing() else self._end(e.Outcome("finished", digests.pop()))

    def _on_stop(self, event: e.StopRequested) -> list[e.Action]:
        waits_for_room = self.generation is None and any(not worker.is_placed for worker in self.workers.values())
        if self.stopping is not None or not self.workers or waits_for_room:
            # Asked twice, or nobody is there who could write a checkpoint: at once, without one.
            return self._end(e.Outcome("stopped", None, event.reason))
        self.stopping = event.reason
        return self._ask_for_checkpoint("stop")

    def _ask_for_checkpoint(self, reason: str) -> list[e.Action]:
        """Ask the first member; whoever is first after it dies is asked again."""
        self.saving.ask("stop" if self.stopping or self._doom else reason)
        return [e.Send(id_, {"type": "checkpoint", "reason": self.saving.asked}) for id_ in self.members[:1]]

    def _record(self, kind: str, **row: Any) -> e.Record:
        """A row of metrics about something that happened where training is now."""
        return e.Record({"kind": kind, **row, "step": max(0, self._streak.reached)})

    def _send_all(self, message: Message, also_servers: bool = False) -> list[e.Action]:
        servers = [server.id for server in self.serving] if also_servers else []
        return [e.Send(id_, message) for id_ in [*self.members, *servers]]

    def _fail(self, cause: str) -> list[e.Action]:
        return self._end(e.Outcome("failed", None, cause))

    def _end(self, outcome: e.Outcome) -> list[e.Action]:
        self.outcome = outcome
        return [e.End(outcome)]
