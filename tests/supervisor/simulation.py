"""A job without processes: the real machine, and model workers that follow the protocol, under a random schedule.

Messages of a connection arrive in order but at any time; workers die or stall at any point, stalled ones wake up when
they have long been expelled, new ones come late. After every event the invariants are checked.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lockstep.generation import Generation
from lockstep.supervisor import events as e
from lockstep.supervisor.machine import Machine


@dataclass
class Model:
    """A worker, as far as membership is concerned."""

    id: int
    loaded: int
    """The step of the checkpoint it started from."""
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
    up: deque[e.Event] = field(default_factory=deque)
    down: deque[dict[str, Any]] = field(default_factory=deque)

    @property
    def settled(self) -> bool:
        return self.generation is not None and self.generation.number == self.promised

    def todo(self) -> list[int]:
        assert self.generation is not None
        assert self.index is not None
        rank = self.generation.rank(self.id)
        return [leaf for leaf in self.generation.leaves(rank, self.index) if leaf not in self.computed]


class Simulation:
    def __init__(self, seed: int, workers: int, leaves: int, last: int, failures: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine(
            num_workers=workers,
            num_leaves=leaves,
            num_evaluation_leaves=1,
            secret="",
            last_step=last,
            max_rapid_deaths=1000,
        )
        self.leaves, self.last, self.failures = leaves, last, failures
        self.models: dict[int, Model] = {}
        self.contributed: dict[tuple[int, int], dict[int, set[int]]] = {}
        self.applied: dict[int, str] = {}
        """What every step was made of, which must be the same whenever it is redone."""
        self.checkpoint = 0
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
        assert sorted(self.applied) == list(range(self.last))

    def event(self) -> None:
        living = [model for model in self.models.values() if not model.stalled]
        choice = self.random.random()
        if self.failures and choice < 0.02:
            self.fail()
        elif choice < 0.35 and (speakers := [model for model in self.models.values() if model.up]):
            model = self.random.choice(speakers)
            self.perform(self.machine.handle(model.up.popleft()))
        elif choice < 0.65 and (hearers := [model for model in living if model.down]):
            self.hear(self.random.choice(hearers))
        elif living:
            self.act(self.random.choice(living))

    def fail(self) -> None:
        """One or several die at once, or stall, or the job is resized."""
        self.failures -= 1
        ids = sorted(self.models)
        kind = self.random.random()
        if kind < 0.1:
            self.perform(self.machine.handle(e.Resize(self.random.randint(1, self.leaves))))
            return
        for id_ in self.random.sample(ids, min(len(ids), self.random.choice([1, 1, 1, 2, 3]))):
            if (model := self.models.get(id_)) is None:
                continue  # killed meanwhile, at the machine's word
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

    def hear(self, model: Model) -> None:
        message = model.down.popleft()
        if message["type"] == "propose":
            model.promised = message["number"]
            step = -1 if model.index is None else model.index + model.done
            held = () if model.done or model.index is None else tuple(sorted(model.computed))
            model.up.append(e.Promised(model.id, message["number"], step, held))
        elif message["type"] == "generation":
            model.generation = Generation.from_plain(message["generation"])
            model.promised = max(model.promised, model.generation.number)
            if model.id in model.generation.joiners:
                model.index = None
        elif message["type"] == "checkpoint" and message["reason"] == "final":
            self.perform(self.machine.handle(e.Checkpointed(self.last, "last", "d", "final")))

    def act(self, model: Model) -> None:
        """One thing that a worker's loop does next."""
        if not model.is_ready:
            model.is_ready, model.index = True, model.loaded
            model.up.append(e.Ready(model.id, f"host:{model.id}", model.loaded))
        elif not model.settled:
            return
        elif model.entered != model.promised:
            self.enter(model)
        elif model.index is None:
            return
        elif model.done:
            model.index, model.done = model.index + 1, False
            model.computed.clear()
            if self.random.random() < 0.1:
                self.checkpoint = max(self.checkpoint, model.index)
        elif model.index == self.last:
            if not model.finished:
                model.finished = True
                model.up.append(e.Finished(model.id, self.last, f"after {self.last}"))
        else:
            self.work(model)

    def work(self, model: Model) -> None:
        assert model.generation is not None
        assert model.index is not None
        if model.computing is not None:
            leaf, model.computing = model.computing, None
            if leaf in model.todo():
                model.computed.add(leaf)
            return
        todo = model.todo()
        if todo:
            model.computing = todo[0]
            self.recomputed += 1
            return
        key = model.generation.number, model.index
        parts = self.contributed.setdefault(key, {})
        parts[model.id] = set(model.computed)
        if set(parts) == set(model.generation.ids):
            self.commit(model, parts, model.index)

    def commit(self, model: Model, parts: dict[int, set[int]], step: int) -> None:
        """Everyone has contributed: the sum must be that of every leaf, once."""
        everything = sorted(leaf for part in parts.values() for leaf in part)
        assert everything == list(range(self.leaves)), (step, parts)
        self.applied[step] = "whole"
        model.done, model.reduced_of = True, step

    def enter(self, model: Model) -> None:
        """Take part in a generation; who lacks something gets it from members that are there."""
        generation = model.generation
        assert generation is not None
        sources = [self.models.get(generation.ids[rank]) for rank in generation.up_to_date]
        lacking = model.id in generation.joiners or model.id in generation.behind
        if lacking:
            if not all(s is not None and s.entered == generation.number == s.promised for s in sources):
                return
            for source in sources:
                assert source is not None
                assert source.index is not None
                assert source.index == generation.step or source.index + source.done == generation.step
        model.entered = generation.number
        if model.id in generation.joiners:
            model.index, model.done, model.computing = generation.step, False, None
            model.computed.clear()
            model.reduced_of = sources[0].reduced_of if sources[0] is not None else None
        elif model.id in generation.behind:
            assert model.index == generation.step - 1
            assert not model.done
            assert sources[0] is not None
            assert sources[0].reduced_of == model.index, "the source does not have the result"
            model.done, model.reduced_of = True, model.index
        else:
            assert model.index is not None
            assert model.index + model.done == generation.step, (model, generation)

    def perform(self, actions: list[e.Action]) -> None:
        for action in actions:
            if isinstance(action, e.Start):
                self.models[action.worker] = Model(action.worker, self.checkpoint)
            elif isinstance(action, e.Kill):
                self.models.pop(action.worker, None)
            elif isinstance(action, e.Send):
                if action.worker in self.models:
                    self.models[action.worker].down.append(action.message)
                if action.message["type"] == "generation":
                    self.check(Generation.from_plain(action.message["generation"]))

    def check(self, generation: Generation) -> None:
        """One generation at a time, with every leaf of its first step given to exactly one living member."""
        if self.generations and self.generations[-1].number == generation.number:
            assert generation == self.generations[-1]
            return
        assert not self.generations or generation.number > self.generations[-1].number
        self.generations.append(generation)
        given = sorted(leaf for leaves in generation.first_leaves for leaf in leaves)
        assert given == list(range(self.leaves))
        assert set(generation.ids) <= set(self.machine.workers)
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
