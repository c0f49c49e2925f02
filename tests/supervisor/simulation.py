"""A job without processes: the real machine, and model workers that follow the protocol, under a random schedule.

Messages of a connection arrive in order but at any time; workers die or stall at any point, stalled ones wake up when
they have long been expelled, new ones come late, pairs of them lose sight of each other, and one has a bit flipped.
Servers may own the slices, and then others may compute the leaves of those who are late. After every event the
invariants are checked.

What a state is made of is kept as a set of flips: `spoiled` are those that came in with the sum of everyone's
gradients, `flipped` those in a worker's own memory. A right state has neither.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.exchange.board import KEPT_RESULTS
from lockstep.generation import Generation
from lockstep.rounds import Rounds
from lockstep.supervisor import events as e
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores
from lockstep.supervisor.verification import Replay, Report, Verification


@dataclass
class Model:
    """A worker, as far as membership is concerned."""

    id: int
    loaded: int
    """The step of the checkpoint it started from."""
    rounds: Rounds
    index: int | None = None
    """The step it is in; None without a state."""
    done: bool = False
    computed: set[int] = field(default_factory=set)
    computing: int | None = None
    reduced_of: int | None = None
    """The step whose result it could still give to a member behind."""
    generation: Generation | None = None
    promised: int = 0
    entered: int = 0
    is_ready: bool = False
    finished: bool = False
    stalled: bool = False
    spoiled: frozenset[str] = frozenset()
    flipped: frozenset[str] = frozenset()
    diverged: int | None = None
    """The first step since the snapshot in which it computed a leaf from a wrong state."""
    verified: int = -1
    snapshot: int | None = None
    """The step of its verified snapshot."""
    goes_back: bool = False
    asked: bool = False
    """Whether it has reported for the verification it waits in."""
    dispute: dict[str, Any] | None = None
    is_server: bool = False
    taken_over: set[int] = field(default_factory=set)
    """Late leaves of others that it computes too."""
    must_stop: bool = False
    """Whether it is to write the last checkpoint."""
    said: set[int] = field(default_factory=set)
    """Generations in which it has reported lost peers."""
    up: deque[e.Event] = field(default_factory=deque)
    down: deque[dict[str, Any]] = field(default_factory=deque)

    @property
    def state(self) -> str:
        assert self.index is not None
        return f"after {self.index}" + "".join(sorted(self.spoiled)) + "|".join(sorted(self.flipped))

    @property
    def reached(self) -> int:
        assert self.index is not None
        return self.rounds.end(self.index) if self.done else self.index

    @property
    def settled(self) -> bool:
        return self.generation is not None and self.generation.number == self.promised

    def todo(self) -> list[int]:
        assert self.generation is not None
        assert self.index is not None
        rank = self.generation.rank(self.id)
        mine = [*self.generation.leaves(rank, self.index), *sorted(self.taken_over)]
        return [leaf for leaf in mine if leaf not in self.computed]


class Simulation:
    def __init__(
        self,
        seed: int,
        workers: int,
        leaves: int,
        last: int,
        failures: int,
        cuts: int = 0,
        verify_every: int = 0,
        servers: int = 0,
        backup: bool = False,
        local_steps: int = 1,
        hosts: bool = False,
        min_workers: int = 0,
        has_room: bool = True,
    ) -> None:
        self.random = random.Random(seed)
        self.backup = backup
        self.results: dict[int, dict[int, set[str]]] = {}
        """By generation: the steps that are done, and what their sums are spoiled by."""
        self.outruns = self.taken = 0
        self.sent: dict[int, dict[int, Model]] = {}
        """By generation: what members that were up to date have sent to those who lacked something."""
        self.cuts, self.every = cuts, verify_every
        self.rounds = Rounds(local_steps, last)
        self.cut: set[frozenset[int]] = set()
        """Pairs that cannot reach each other."""
        self.flip_at = self.random.randint(1, last - 1) if verify_every else None
        self.now = 0.0
        self.machine = Machine(
            num_workers=workers,
            num_servers=servers,
            min_workers=min_workers,
            num_leaves=leaves,
            secret="",
            saving=Saving(last),
            scores=Scores(1),
            verification=Verification(0) if verify_every else None,
            max_rapid_deaths=1000,
            rounds=self.rounds,
        )
        self.leaves, self.last, self.failures = leaves, last, failures
        self.hosts, self.room = hosts, workers
        self.has_room = has_room
        """Whether every worker finds a place at once."""
        self.is_full = False
        """Whether nobody finds one any more."""
        self.waiting: list[int] = []
        """Those that wait for one."""
        self.models: dict[int, Model] = {}
        self.contributed: dict[tuple[int, int], dict[int, set[int]]] = {}
        self.wrongs: dict[tuple[int, int], set[str]] = {}
        """What the sum of a step in a generation is spoiled by."""
        self.sums: dict[int, frozenset[str]] = {}
        self.applied: dict[int, str] = {}
        """What every step was made of, which must be the same whenever it is redone."""
        self.checkpoints: dict[int, frozenset[str]] = {0: frozenset()}
        """What each of them is spoiled by."""
        self.rollbacks = 0
        self.recomputed = 0
        self.generations: list[Generation] = []
        self.perform(self.machine.start())

    def run(self) -> None:
        """Until the job is over; far more events than any schedule needs mean that it does not progress."""
        for _ in range(60_000):
            if self.machine.outcome is not None:
                break
            self.event()
        assert self.machine.outcome is not None, "no progress"
        assert self.machine.outcome.state == "finished", self.machine.outcome
        assert self.machine.outcome.digest == f"after {self.last}"
        assert sorted(self.applied) == list(range(0, self.last, self.rounds.length))

    def stop(self, failures: int = 0) -> None:
        """Those who wait for room find none any more, and nothing else goes wrong: the job ends. With failures there is
        no room for others either."""
        self.failures, self.has_room, self.is_full = failures, True, failures > 0
        self.waiting.clear()
        self.perform(self.machine.handle(e.StopRequested("SIGINT"), self.now))
        for _ in range(10_000):
            if self.machine.outcome is not None:
                break
            self.event()
        assert self.machine.outcome is not None, "it does not stop"
        assert self.machine.outcome.state in ("stopped", "finished"), self.machine.outcome

    def event(self) -> None:
        living = [model for model in self.models.values() if not model.stalled]
        choice = self.random.random()
        if self.failures and choice < 0.02:
            self.fail()
        elif self.hosts and not self.machine.workers:
            self.change_hosts()
        elif self.cuts and choice < 0.03:
            self.cuts -= 1
            if len(self.models) > 1:
                self.cut.add(frozenset(self.random.sample(sorted(self.models), 2)))
        elif self.waiting and choice < 0.04:
            self.place(self.waiting.pop(0))
        elif choice < 0.05:
            self.now += 0.5
            self.perform(self.machine.handle(e.Tick(), self.now))
        elif choice < 0.35 and (speakers := [model for model in self.models.values() if model.up]):
            model = self.random.choice(speakers)
            self.perform(self.machine.handle(model.up.popleft(), self.now))
        elif choice < 0.65 and (hearers := [model for model in living if model.down]):
            self.hear(self.random.choice(hearers))
        elif living:
            model = self.random.choice(living)
            if not self.is_slow(model) or self.random.random() < 0.03:
                self.act(model)

    def is_slow(self, model: Model) -> bool:
        """With backups some workers are far slower than the others."""
        return self.backup and model.id % 3 == 1 and model.entered > 0

    def fail(self) -> None:
        """One or several die at once, or stall, or the job is resized."""
        self.failures -= 1
        if self.hosts and self.random.random() < 0.6:
            self.change_hosts()
            return
        ids = sorted(self.models)
        kind = self.random.random()
        if kind < 0.1 and not self.hosts and not any(model.flipped for model in self.models.values()):
            self.perform(self.machine.handle(e.Resize(self.random.randint(1, self.leaves))))
            return
        for id_ in self.random.sample(ids, min(len(ids), self.random.choice([1, 1, 1, 2, 3]))):
            if (model := self.models.get(id_)) is None:
                continue  # killed meanwhile, at the machine's word
            if any(one.flipped for one in self.models.values()) and not self.would_be_found_without(model):
                continue
            if kind < 0.4:
                model.stalled = True  # expelled now, and awake again later, when nobody expects it
                gone: list[e.Event] = [e.Gone(id_, "stalled", is_death=True)]
            else:
                del self.models[id_]
                said = list(model.up) if self.random.random() < 0.5 else []
                gone = [*said, e.Gone(id_, "died", is_death=True)]
            for event in gone:
                self.perform(self.machine.handle(event))
        for model in self.models.values():
            if model.stalled and self.random.random() < 0.5:
                model.stalled = False

    def change_hosts(self) -> None:
        """A host joins, or goes with some of the workers, in order or not; somebody always comes back."""
        workers = sorted(self.machine.workers)
        if workers and self.random.random() < 0.5:
            gone = self.random.sample(workers, self.random.randint(1, len(workers)))
            self.room -= len(gone)
            for id_ in gone:
                self.models.pop(id_, None)
            left = e.Left("host", tuple(gone), self.room, is_loss=self.random.random() < 0.5)
            self.perform(self.machine.handle(left))
        if not self.machine.workers or self.random.random() < 0.5:
            slots = self.random.randint(1, 3)
            self.room += slots
            self.perform(self.machine.handle(e.Joined("host", slots)))

    def members(self) -> list[Model]:
        """Those who have a state."""
        known = [self.models.get(id_) for id_ in self.machine.members]
        return [model for model in known if model is not None and model.index is not None]

    def would_be_found_without(self, model: Model) -> bool:
        """A flip is found where two memories differ: not if the flipped one dies, nor if only copies of it remain."""
        return not model.flipped and any(not one.flipped for one in self.members() if one is not model)

    def hear(self, model: Model) -> None:
        message = model.down.popleft()
        if message["type"] == "propose":
            model.promised = message["number"]
            step = -1 if model.index is None else model.reached
            held = () if model.done or model.index is None else tuple(sorted(model.computed))
            if model.goes_back:
                assert model.snapshot is not None
                step, held = model.snapshot, ()
            model.up.append(e.Promised(model.id, message["number"], step, held))
        elif message["type"] == "generation":
            model.taken_over.clear()
            model.generation = Generation.from_plain(message["generation"])
            model.promised = max(model.promised, model.generation.number)
            model.verified, model.asked, model.dispute = model.generation.verified, False, None
            if model.id in model.generation.joiners:
                model.index, model.goes_back = None, False
            elif model.generation.goes_back:
                assert model.snapshot == model.generation.step
                model.goes_back = True
        elif message["type"] == "verified":
            model.verified = message["step"]
        elif message["type"] == "dispute":
            model.dispute = message
        elif message["type"] == "checkpoint" and message["reason"] == "final":
            self.perform(self.machine.handle(e.Checkpointed(self.last, "last", "d", "final", number=10**9)))
        elif message["type"] == "checkpoint" and message["reason"] == "stop":
            model.must_stop = True

    def act(self, model: Model) -> None:
        """One thing that a worker's loop does next; a server's is to be there."""
        if model.is_server:
            if not model.is_ready:
                model.is_ready = True
                model.up.append(e.Ready(model.id, f"host:{model.id}", -1))
        elif not model.is_ready:
            model.is_ready, model.index, model.snapshot = True, model.loaded, model.loaded
            model.spoiled = self.checkpoints[model.loaded]
            model.up.append(e.Ready(model.id, f"host:{model.id}", model.loaded))
        elif not model.settled:
            return
        elif model.goes_back:
            self.go_back(model)
        elif model.index is not None and model.done:
            model.index, model.done = model.reached, False
            model.computed.clear()
            model.taken_over.clear()
            others = [one for one in self.members() if one is not model]
            if self.flip_at is not None and model.index >= self.flip_at and others:
                self.flip_at, model.flipped = None, frozenset({"!"})
        elif model.entered != model.promised:
            self.enter(model)
        elif model.index is None:
            return
        elif model.must_stop:
            model.must_stop = False
            model.up.append(e.Checkpointed(model.index, "last", "d", "stop", number=model.promised))
        elif self.is_verification_due(model, model.index):
            self.verify(model)
        elif self.every and model.verified == model.index != model.snapshot:
            self.keep(model)
        elif self.random.random() < 0.02:
            self.checkpoints[model.index] = model.spoiled | model.flipped
        elif model.index == self.last:
            if not model.finished:
                model.finished = True
                model.up.append(e.Finished(model.id, self.last, model.state))
        else:
            self.work(model)

    def is_verification_due(self, model: Model, index: int) -> bool:
        planned = self.every > 0 and (self.rounds.is_due(self.every, index) or index == self.last)
        return planned and model.verified < index

    def verify(self, model: Model) -> None:
        """Report once per generation, answer a dispute, and go on when all agree."""
        assert model.index is not None
        number = model.promised
        if not model.asked:
            model.asked = True
            model.up.append(e.Verify(model.id, number, model.index, Report(model.state, {})))
        elif model.dispute is not None:
            assert model.dispute["replay"]
            model.dispute = None
            replay = Replay("" if model.snapshot is None else f"after {model.index}", model.diverged)
            model.up.append(e.Answer(model.id, number, model.index, replay))

    def keep(self, model: Model) -> None:
        """The verified state, with which a worker passes a verification."""
        assert not model.spoiled | model.flipped, "a wrong state was verified"
        model.snapshot, model.diverged, model.asked = model.index, None, False

    def go_back(self, model: Model) -> None:
        model.index, model.done, model.computing, model.goes_back = model.snapshot, False, None, False
        model.computed.clear()
        model.spoiled = model.flipped = frozenset()
        model.diverged, model.finished, model.asked = None, False, False

    def work(self, model: Model) -> None:
        assert model.generation is not None
        assert model.index is not None
        if model.computing is not None:
            leaf, model.computing = model.computing, None
            if leaf in model.todo():
                model.computed.add(leaf)
                if model.spoiled | model.flipped and model.diverged is None:
                    model.diverged = model.index
            return
        if self.backup and model.generation.servers and self.work_eagerly(model):
            return
        todo = model.todo()
        if todo:
            model.computing = todo[0]
            self.recomputed += 1
            return
        if not all(self.serves(server.id, model.generation) for server in model.generation.servers):
            return
        unreachable = [id_ for id_ in model.generation.ids if frozenset({id_, model.id}) in self.cut]
        if unreachable:
            if model.generation.number not in model.said:
                model.said.add(model.generation.number)
                for peer in unreachable:
                    model.up.append(e.LostPeer(model.id, model.generation.number, peer))
            return
        key = model.generation.number, model.index
        parts = self.contributed.setdefault(key, {})
        parts[model.id] = set(model.computed)
        self.wrongs.setdefault(key, set()).update(model.spoiled | model.flipped)
        if set(parts) == set(model.generation.ids):
            self.commit(model, parts, model.index)

    def serves(self, server: int, generation: Generation) -> bool:
        model = self.models.get(server)
        return model is not None and model.generation == generation and not model.stalled

    def work_eagerly(self, model: Model) -> bool:
        """Every leaf is sent at once, and the first arrival counts. False if there is one to compute."""
        generation, index = model.generation, model.index
        assert generation is not None
        assert index is not None
        if not all(self.serves(server.id, generation) for server in generation.servers):
            return True
        done = self.results.setdefault(generation.number, {})
        parts = self.contributed.setdefault((generation.number, index), {})
        if index not in done and model.computed:
            parts[model.id] = set(model.computed)
            self.wrongs.setdefault((generation.number, index), set()).update(model.spoiled | model.flipped)
        missing = set(range(self.leaves)).difference(*parts.values())
        if not missing and index not in done:
            done[index] = set(self.wrongs[generation.number, index])
        if index in done and index <= max(done) - KEPT_RESULTS:
            if generation.number not in model.said:
                model.said.add(generation.number)
                self.outruns += 1
                model.up.append(e.Outrun(model.id, generation.number))
            return True
        if index in done:
            self.commit(model, {0: set(range(self.leaves))}, index)
            return True
        if not model.todo():
            if self.random.random() < 0.3:
                model.taken_over.add(self.random.choice(sorted(missing)))
                self.taken += 1
            return True
        return False

    def commit(self, model: Model, parts: dict[int, set[int]], step: int) -> None:
        """Everyone has contributed: the sum must be that of every leaf, once."""
        everything = sorted(leaf for part in parts.values() for leaf in part)
        assert everything == list(range(self.leaves)), (step, parts)
        self.applied[step] = "whole"
        assert model.generation is not None
        model.done, model.reduced_of = True, step
        model.spoiled |= frozenset(self.wrongs[model.generation.number, step])
        self.sums[step] = frozenset(self.wrongs[model.generation.number, step])

    def enter(self, model: Model) -> None:
        """Take part in a generation; who lacks something gets it from members that are there."""
        generation = model.generation
        assert generation is not None
        sent = self.sent.setdefault(generation.number, {})
        sources = [generation.ids[rank] for rank in generation.up_to_date]
        if model.id in generation.joiners or model.id in generation.behind:
            if not all(source in sent and source in self.models for source in sources):
                return
            assert all(sent[source].index == generation.step for source in sources)
        model.entered = generation.number
        if model.id in generation.joiners:
            model.index, model.done, model.computing = generation.step, False, None
            model.computed.clear()
            source = sent[sources[0]]
            model.reduced_of = source.reduced_of
            model.spoiled, model.flipped = source.spoiled, source.flipped
            model.snapshot, model.diverged, model.finished = None, None, False
            if generation.verified == generation.step:
                self.keep(model)
        elif model.id in generation.behind:
            assert model.index == self.rounds.before(generation.step)
            assert not model.done
            assert sent[sources[0]].reduced_of == model.index, "the source does not have the result"
            model.done, model.reduced_of = True, model.index
            model.spoiled |= self.sums[model.index]
        else:
            assert model.index is not None
            assert model.reached == generation.step, (model, generation)
            sent[model.id] = replace(model, index=generation.step)

    def perform(self, actions: list[e.Action]) -> None:
        for action in actions:
            if isinstance(action, e.Start):
                if self.is_full:
                    continue
                if self.has_room or action.role == "server" or self.random.random() < 0.5:
                    self.place(action.worker, is_server=action.role == "server")
                else:
                    self.waiting.append(action.worker)
            elif isinstance(action, e.RollBack):
                self.rollbacks += 1
                self.checkpoints = {s: wrong for s, wrong in self.checkpoints.items() if s <= action.step}
                self.applied = {s: whole for s, whole in self.applied.items() if s < action.step}
            elif isinstance(action, e.Kill):
                self.models.pop(action.worker, None)
                self.waiting = [id_ for id_ in self.waiting if id_ != action.worker]
            elif isinstance(action, e.Send):
                if action.worker in self.models:
                    self.models[action.worker].down.append(action.message)
                if action.message["type"] == "generation":
                    self.check(Generation.from_plain(action.message["generation"]))

    def place(self, id_: int, is_server: bool = False) -> None:
        """A process is started, from the newest checkpoint that may be trusted."""
        verification = self.machine.verification
        trusted = None if verification is None else verification.verified
        loaded = max(step for step in self.checkpoints if trusted is None or step <= trusted)
        self.models[id_] = Model(id_, loaded, self.rounds, is_server=is_server)
        self.machine.handle(e.Placed(id_))

    def check(self, generation: Generation) -> None:
        """One generation at a time, with every leaf of its first step given to exactly one living member."""
        if self.generations and self.generations[-1].number == generation.number:
            assert generation == self.generations[-1]
            return
        assert not self.generations or generation.number > self.generations[-1].number
        self.generations.append(generation)
        given = sorted(leaf for leaves in generation.first_leaves for leaf in leaves)
        assert (sorted(set(given)) if self.backup else given) == list(range(self.leaves))
        assert set(generation.ids) <= set(self.machine.workers)
        assert {server.id for server in generation.servers} <= set(self.machine.servers)
        assert len(generation) <= self.leaves
        assert generation.up_to_date
        for rank, id_ in enumerate(generation.ids):
            model = self.models.get(id_)
            if (
                model is not None
                and model.index == generation.step
                and not model.done
                and id_ not in generation.joiners
            ):
                assert model.computed <= set(generation.first_leaves[rank]), (model, generation)
