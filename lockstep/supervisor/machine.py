"""The supervisor's decisions as a pure state machine: events in, actions out. No socket, no process, no clock.

A simulator drives it through thousands of schedules. `run.py` turns what happens into events and carries actions out.

How a new generation comes about: the machine proposes a number to all live members; each promises not to finish
anything in an older generation, and says which step it is in and which leaves it holds; when all have promised (or
died), the machine knows the newest step, gives the missing leaves to the living, and announces the generation.

Here is how generations come about. What else can happen has files of its own, of functions that are given the
machine: `serving` and `observing` (servers, the evaluator), `admission` (who may take part), `sizing` (how many),
`patience` (time), `judging` (evaluations, verifications), `ending` (checkpoints, the end), `telling` (what is said of
it). What they know is in `roster`, `watch`, `scores`, `saving`, `ground`, `verification`, `probes` and `observer`;
`forming` puts a generation together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lockstep.generation import Generation, Member
from lockstep.rounds import EVERY_STEP, Rounds
from lockstep.supervisor import admission, ending, judging, observing, patience, probes, serving, sizing, telling
from lockstep.supervisor import events as e
from lockstep.supervisor.forming import NO_STATE, Forming, Promise, form
from lockstep.supervisor.ground import Ground
from lockstep.supervisor.observer import Observer
from lockstep.supervisor.probes import OwnCode, Probe
from lockstep.supervisor.roster import Losses, Roster, Streak
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores
from lockstep.supervisor.verification import Verification
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
    own_code: OwnCode = field(default_factory=OwnCode)
    allow_mixed: bool = False
    """Whether workers whose arithmetic differs may take part."""
    max_rapid_deaths: int = 4
    """Deaths per worker without a step in between that end the job: a crash loop heals by no restart."""
    rounds: Rounds = EVERY_STEP
    generation: Generation | None = None
    outcome: e.Outcome | None = None
    stopping: str | None = None
    losses: Losses = field(default_factory=Losses)
    _number: int = 0
    forming: Forming | None = None
    causes: list[str] = field(default_factory=list)
    """Why the next generation is formed."""
    going_back: bool = False
    """Whether the next generation begins at the last verified snapshot."""
    finished: dict[int, str] = field(default_factory=dict)
    streak: Streak = field(default_factory=Streak)
    ground: Ground = field(default_factory=Ground)
    now: float = 0.0
    """The time of the newest event, as it was given."""
    unmanned_since: float = 0.0
    """When the last member went, as long as there is none."""
    lost_servers: int = 0
    doom: e.Outcome | None = None
    """How the job will end as soon as a checkpoint is written."""

    def handle(self, event: e.Event, now: float = 0.0) -> list[e.Action]:
        """What to do about an event. Nothing more happens once the job is over; the dead are not heard."""
        if self.outcome is not None:
            return []
        self.now = max(self.now, now)
        return self._hear(event, now) + ending.end_if_in_vain(self)

    def _hear(self, event: e.Event, now: float) -> list[e.Action]:
        worker = getattr(event, "worker", None)
        if worker in self.servers:
            return serving.hear(self, worker, event, now)
        if worker in self.evaluators and self.observer is not None:
            return observing.hear(self, self.observer, worker, event, now)
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
                return patience.heartbeat(self, event, now)
            case e.LostPeer():
                return patience.lost_peer(self, event, now)
            case e.Outrun():
                return patience.outrun(self, event)
            case e.Tick():
                return patience.tick(self, now)
            case e.Delay():
                self.losses.seconds += event.seconds
                row = {"kind": "recovery", "generation": event.number, "step": event.step, "seconds": event.seconds}
                return [e.Record(row)]
            case e.Evaluation():
                return judging.evaluation(self, event)
            case e.Verify() | e.Answer():
                return judging.verification(self, event)
            case e.Checkpointed():
                return ending.checkpointed(self, event)
            case e.CheckpointFailed():
                return ending.checkpoint_failed(self, event, now)
            case e.Finished():
                self.finished[event.worker] = event.digest
                return ending.end_if_finished(self)
            case e.Raised():
                return self._on_raised(event)
            case e.Gone():
                return self._on_gone(event)
            case e.Reached():
                self.ground.reach(event.step)
                return []
            case e.CheckpointTime():
                return ending.ask_for_checkpoint(self, "time")
            case e.Resize():
                return sizing.resize(self, event)
            case e.Joined():
                return sizing.join(self, event)
            case e.Left():
                return sizing.leave(self, event)
            case e.StopRequested():
                return ending.stop(self, event)

    def mourn(self, id_: int, role: str, how: str, kill: bool) -> list[e.Action]:
        """A process is dead: count it, start another one, and give up where that heals nothing."""
        self.losses.deaths += 1
        self.streak.causes.append(f"{role} {id_} {how}")
        self.causes.append("death")
        marks = {} if self.is_elastic else {"fatal": True}
        actions: list[e.Action] = [self.record("death", worker=id_, role=role, how=how, **marks)]
        if kill:
            actions.append(e.Kill(id_))
        what = f"{role} {id_} {how}"
        if not self.is_elastic:
            return [*actions, e.Tell(f"{what}; the job ends with a checkpoint"), *ending.end_after(self, id_, how)]
        causes = self.streak.causes
        if len(causes) > self.max_rapid_deaths * (self.num_workers + self.num_servers):
            cause = f"{len(causes)} deaths without a step in between; the first: {causes[0]}"
            return [*actions, e.Tell(what), *self.end(e.Outcome("failed", None, cause, id_, died=True))]
        started = sizing.others(self)
        return [*actions, e.Tell(f"{what}; {telling.aftermath(self)}"), *started]

    def ask_evaluator(self, observer: Observer) -> list[e.Action]:
        ready = self.ready_evaluators
        good = observer.take() if ready else None
        return [] if good is None else [e.Send(ready[0], {"type": "evaluate", "step": good.step, "name": good.name})]

    def is_observing(self) -> bool:
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
        actions = admission.check_probes(self, [event.worker])
        if self.outcome is not None:
            return actions
        if event.worker not in self.workers:  # refused; perhaps it was the last one that was waited for
            return actions + self.go_on_if_enough()
        self.causes.append("join")
        return actions + self.propose()

    def _on_raised(self, event: e.Raised) -> list[e.Action]:
        if admission.is_dispensable(self, event.worker):
            why = f"it cannot set itself up: {event.message.strip().splitlines()[-1]}"
            return admission.refuse(self, event.worker, why) + self.go_on_if_enough()
        place = "" if event.user or not event.where else f"{event.where}: "
        return self.end(e.Outcome("failed", None, f"{place}{event.message}", event.worker, event.user))

    def go_on_if_enough(self) -> list[e.Action]:
        """Begin, or go on, if only someone was waited for who is not needed any more."""
        return self._announce_if_promised() if self.members else self.propose()

    def propose(self) -> list[e.Action]:
        """Ask the living members for a promise; without any, begin from what the ready workers have loaded."""
        members = self.members
        if not members:
            return self._begin()
        self._number += 1
        self.watch.clear_reports()
        self.forming = Forming(self._number, set(members))
        return [e.Send(id_, {"type": "propose", "number": self._number}) for id_ in members]

    def _begin(self) -> list[e.Action]:
        """The first generation, or the first after everyone died: when all that are wanted are ready."""
        self.forming = None
        ready = sorted(self.ready_workers)
        if not ready or len(ready) < self.num_awaited:
            return []
        if any(server.address is None for server in self.servers.values()):
            return []
        actions: list[e.Action] = []
        if self.probe is None and (known := [p for id_ in ready if (p := self.workers[id_].probe) is not None]):
            self.probe = probes.most_common(known)
            actions = [e.Adopt(self.probe), *admission.check_probes(self, ready)]
            ready = [id_ for id_ in ready if id_ in self.workers]
        self._number += 1
        self.finished.clear()
        self.causes = ["start"]
        self.going_back = False
        newest = max(self.workers[id_].step for id_ in ready)
        holders = [id_ for id_ in ready if self.workers[id_].step == newest]
        if self.verification is not None:
            if self.generation is not None:
                # Everyone died, and whatever was not verified may have been wrong: that is done again.
                actions.append(self._go_back(self.verification))
            self.verification.begin(newest, holders, (self.scores.evaluated, self.scores.best))
            actions.append(e.Trust(newest))
        if self.generation is None:
            self.ground.reach(newest)
            self.ground.keep(newest, self.useful_seconds, is_stored=True)
        return actions + self._announce(dict.fromkeys(holders, (newest, ())))

    @property
    def has_too_few(self) -> bool:
        """Whether those who are left wait for others to come."""
        return len(self.ready_workers) < self.min_workers and self.replace and not self.finished

    def _on_promised(self, event: e.Promised) -> list[e.Action]:
        forming = self.forming
        if forming is None or event.number != forming.number:
            return []
        forming.promises[event.worker] = (event.step, tuple(event.held))
        self.ground.reach(event.step)
        return self._announce_if_promised()

    def _announce_if_promised(self) -> list[e.Action]:
        """The generation that was proposed, when all who live have promised, and they are enough."""
        forming = self.forming
        if forming is None or any(id_ not in forming.promises for id_ in forming.awaited & set(self.workers)):
            return []
        promises = {id_: forming.promises[id_] for id_ in self.members}
        with_state = {id_: promise for id_, promise in promises.items() if promise[0] != NO_STATE}
        if self.going_back and self.verification is not None:
            back: Promise = (self.verification.verified, ())
            with_state = dict.fromkeys((id_ for id_ in with_state if id_ in self.verification.holders), back)
        if not with_state:
            return self._restart(list(promises))
        if self.has_too_few:
            return []  # whoever becomes ready makes a new proposal
        return self._announce(with_state)

    def _restart(self, members: list[int]) -> list[e.Action]:
        """Nobody is left who could give the others the state: new workers load the newest checkpoint."""
        self.forming = None
        actions: list[e.Action] = []
        for id_ in members:
            self.drop(id_)
            actions.append(e.Kill(id_))
        actions += self._go_back_if_due()
        if not self.replace and not self.workers:
            return actions + ending.nobody_left(self, members[0])
        return [*actions, *sizing.others(self), *self._begin()]

    def _go_back_if_due(self) -> list[e.Action]:
        if not self.going_back or self.verification is None:
            return []
        return [self._go_back(self.verification)]

    def _go_back(self, verification: Verification) -> e.RollBack:
        """Nothing that came after the last verified snapshot counts."""
        self.scores.go_back(*verification.scores)
        self.saving.go_back(self._number, verification.verified)
        if self.observer is not None:
            self.observer.go_back(verification.verified)
        self.finished.clear()
        return e.RollBack(verification.verified)

    def _announce(self, promises: dict[int, Promise]) -> list[e.Action]:
        """The new generation: who has a state stays, in order; then those who join."""
        self.forming = None
        actions = self._go_back_if_due()
        newest = max(step for step, _ in promises.values())
        before = {} if self.going_back else self._plan_before(newest)
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
        steps_again, setback = self._set_back(step)
        leaves_again = formed.num_recomputed + self._leaves_in(steps_again)
        new = [] if self.generation is None else [id_ for id_ in ids if id_ not in self.generation.ids]
        joined = joiners if self.members else new
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
            goes_back=self.going_back,
        )
        self.streak.note_progress(step)
        self.losses.joins += len(joined)
        self.losses.recomputed_leaves += leaves_again
        self.finished = {id_: digest for id_, digest in self.finished.items() if id_ in ids}
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
            "joined": joined,
            "causes": sorted(set(self.causes)),
            "missing_leaves": formed.num_missing,
            "recomputed_leaves": leaves_again,
        }
        self.causes, self.going_back = [], False
        return [
            *actions,
            # Whoever was asked for a checkpoint may be dead. The new one hears of it before it may go on.
            *(ending.ask_for_checkpoint(self, self.saving.asked) if self.saving.asked is not None else []),
            *self.send_all({"type": "generation", "generation": self.generation.to_plain()}, also_servers=True),
            e.Record(row),
            *setback,
            *([telling.joined(new, len(ids), step, steps_again)] if new else []),
            *ending.end_if_finished(self),
        ]

    def _set_back(self, step: int) -> tuple[int, list[e.Action]]:
        """How many steps are done again because nobody is left or bits were wrong, and what that cost."""
        is_lost = self.generation is not None and not self.members
        if is_lost and serving.have_kept(self):
            step, steps, seconds = max(step, self.ground.step), 0, self.now - self.unmanned_since
        elif is_lost or self.going_back:
            steps, seconds = self.ground.go_back(step, self.useful_seconds)
        else:
            return 0, []
        self.losses.seconds += seconds
        costs = {"seconds": round(seconds, 4), "steps": steps, "leaves": self._leaves_in(steps)}
        return steps, [e.Record({"kind": "recovery", "generation": self._number, "step": step, **costs})]

    def _leaves_in(self, steps: int) -> int:
        """A leaf is a whole round of local steps where there are rounds."""
        return -(-steps // self.rounds.length) * self.num_leaves

    @property
    def useful_seconds(self) -> float:
        return self.now - self.losses.seconds

    def _plan_before(self, step: int) -> dict[int, int]:
        """Who was to compute which leaf of `step`."""
        if self.generation is None or not self.members:
            return {}
        shares = [(id_, self.generation.leaves(rank, step)) for rank, id_ in enumerate(self.generation.ids)]
        return {leaf: id_ for id_, leaves in shares for leaf in leaves}

    def _on_gone(self, event: e.Gone) -> list[e.Action]:
        if not event.is_death and admission.is_dispensable(self, event.worker):
            return admission.refuse(self, event.worker, f"it {event.how}") + self.go_on_if_enough()
        if not event.is_death:
            return self.end(e.Outcome("failed", None, event.how, event.worker, died=True))
        return self.remove(event.worker, event.how)

    def drop(self, worker: int) -> None:
        is_last = self.members == [worker]
        del self.workers[worker]
        if is_last:
            self.unmanned_since = self.now
        self.finished.pop(worker, None)
        self.watch.forget(worker)

    def remove(self, worker: int, how: str, kill: bool = False) -> list[e.Action]:
        """A worker is no more: replace it, and let the others go on."""
        was_member = worker in self.members
        awaited = self.forming is not None and worker in self.forming.awaited
        self.drop(worker)
        actions = self.mourn(worker, "worker", how, kill)
        if self.outcome is not None:
            return actions
        if not self.workers:
            return actions + ending.nobody_left(self, worker)
        return actions + self.go_on(was_member, awaited)

    def go_on(self, was_member: bool, awaited: bool) -> list[e.Action]:
        """Without someone who was a member, or whose promise was awaited."""
        if awaited and self.members:
            return self._announce_if_promised()
        if was_member or self.generation is None or not self.members:
            return self.propose()
        return []

    # Evaluation, verification

    def record(self, kind: str, **row: Any) -> e.Record:
        """A row of metrics about something that happened where training is now."""
        return e.Record({"kind": kind, **row, "step": max(0, self.streak.reached)})

    def send_all(self, message: Message, also_servers: bool = False) -> list[e.Action]:
        servers = [server.id for server in self.serving] if also_servers else []
        return [e.Send(id_, message) for id_ in [*self.members, *servers]]

    def fail(self, cause: str) -> list[e.Action]:
        return self.end(e.Outcome("failed", None, cause))

    def end(self, outcome: e.Outcome) -> list[e.Action]:
        self.outcome = outcome
        return [e.End(outcome)]
