"""What the first server of `async` hands out, through random schedules of deaths, restarts and barriers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from lockstep.exchange.tasks import NOWHERE, Barrier, Task, Tasks

Key = tuple[int, int]


@dataclass
class Simulated:
    """A worker, as far as the first server sees it."""

    serial: int = 0
    floor: int = 0
    waits: bool = False
    task: Key | None = None
    pulled: int | None = None
    pushed: bool = False
    at: int | None = 0
    """The barrier at which it is."""
    index: int = 0
    """The step in which others see it."""
    wants: bool = False
    seen: list[int] = field(default_factory=list)
    """The barriers at which it was."""


class Simulation:
    """All of `async` but processes and numbers. Who is at a planned barrier waits for all, as in an evaluation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.leaves, self.staleness = self.random.choice([1, 2, 4]), self.random.choice([0, 1, 3])
        self.last, self.every = self.random.randint(1, 14), self.random.choice([3, 5, 100])
        self.workers = {id_: Simulated() for id_ in range(self.random.randint(1, 4))}
        self.num_workers = self.next_id = len(self.workers)
        self.misfortunes = self.random.choice([0, 0, 3, 8])
        self.restarts = 0
        self.saved, self.version = 0, 0
        self.applied: set[Key] = set()
        self.evaluated: set[int] = {0}
        self.arrived: dict[int, set[int]] = {}
        self.tasks = self.server()
        self.tasks.begin(self.workers, 0)

    def server(self) -> Tasks:
        return Tasks(self.leaves, self.saved, self.last, self.staleness, self.is_planned)

    def is_planned(self, step: int) -> bool:
        return step > 0 and step % self.every == 0

    def run(self) -> None:
        for _ in range(20_000):
            if all(worker.at == self.last for worker in self.workers.values()):
                return
            self.act()
        raise AssertionError(f"nobody gets on: {self.workers}")

    def act(self) -> None:
        if self.misfortunes and self.random.random() < 0.02:
            self.misfortunes -= 1
            self.random.choice([self.lose_worker, self.lose_server, self.change, self.want])()
        else:
            id_ = self.random.choice(list(self.workers))
            self.go_on(id_, self.workers[id_])

    def go_on(self, id_: int, worker: Simulated) -> None:
        if worker.at is not None and worker.at not in self.evaluated:
            self.arrived.setdefault(worker.at, set()).add(id_)
            if self.arrived[worker.at] >= set(self.workers):
                self.evaluated.add(worker.at)
        elif worker.task is not None and worker.pulled is None:
            worker.pulled = self.version
        elif worker.task is not None and not worker.pushed:
            self.push(worker)
        elif worker.task is not None:
            for step in self.tasks.done(*worker.task):
                assert {(step, leaf) for leaf in range(self.leaves)} <= self.applied
            worker.task, worker.pulled, worker.pushed = None, None, False
            self.answer()
        elif not worker.waits and worker.at != self.last:
            worker.waits, worker.at = True, None
            self.tasks.ask(id_, worker.serial, worker.floor, worker.wants or worker.serial == NOWHERE)
            self.answer()

    def has_all_before(self, end: int) -> bool:
        return all((step, leaf) in self.applied for step in range(end) for leaf in range(self.leaves))

    def push(self, worker: Simulated) -> None:
        worker.pushed = True
        assert worker.task is not None
        assert worker.pulled is not None
        if worker.task not in self.applied:
            self.applied.add(worker.task)
            assert 0 <= self.version - worker.pulled < (2 * self.staleness + 1) * self.leaves
            self.version += 1

    def answer(self) -> None:
        for id_, answer in self.tasks.answers():
            worker = self.workers[id_]
            worker.waits = False
            if isinstance(answer, Task):
                self.give(worker, answer)
            else:
                self.stop(worker, answer)

    def give(self, worker: Simulated, task: Task) -> None:
        key = task.step, task.leaf
        assert self.has_all_before(task.step - self.staleness)
        if not self.restarts:
            assert key not in self.applied or self.next_id > self.num_workers  # its worker died before it could say so
            assert all(other.task != key for other in self.workers.values())
            assert all(other.at is None for other in self.workers.values())
        assert self.tasks.held is None
        worker.task, worker.floor = key, max(worker.floor, self.tasks.floor)
        worker.index = max(worker.index, task.step)

    def stop(self, worker: Simulated, barrier: Barrier) -> None:
        assert self.tasks.held == barrier.step
        assert self.has_all_before(barrier.step)
        if not self.restarts:
            assert all(step < barrier.step for step, _ in self.applied)
            assert all(other.task is None for other in self.workers.values())
        worker.serial, worker.floor, worker.at, worker.wants = barrier.serial, barrier.step, barrier.step, False
        worker.seen.append(barrier.step)
        worker.index = barrier.step
        if self.random.random() < 0.5:
            self.saved = max(self.saved, barrier.step)
        if not self.is_planned(barrier.step) and barrier.step != self.last:
            self.evaluated.add(barrier.step)

    # Misfortunes

    def lose_worker(self) -> None:
        """Another one joins; if nobody is left who could wait for it, all begin anew."""
        del self.workers[self.random.choice(list(self.workers))]
        number, serial = 1, NOWHERE
        if all(worker.serial == NOWHERE for worker in self.workers.values()):
            number, serial = len(self.workers) + 1, 0
            self.workers.clear()
        for _ in range(number):
            first = 0 if serial else self.saved
            self.workers[self.next_id] = Simulated(serial=serial, at=None, floor=first, index=first)
            self.next_id += 1
        self.change()

    def lose_server(self) -> None:
        """The first one; the others keep what they have applied."""
        self.restarts += 1
        self.tasks = self.server()
        self.change()

    def change(self) -> None:
        """A new generation: what was on its way is lost."""
        for worker in self.workers.values():
            worker.waits = False
            if worker.pushed and self.random.random() < 0.5:  # the push was heard of, but not that all have it
                worker.pushed = False
        self.tasks.begin(self.workers, max(worker.index for worker in self.workers.values()))

    def want(self) -> None:
        next(iter(self.workers.values())).wants = True


@pytest.mark.parametrize("block", range(10))
def test_every_leaf_is_applied_once_with_bounded_staleness_and_all_meet_at_barriers(block: int) -> None:
    """F54, with deaths of workers and of the first server."""
    for seed in range(block * 150, block * 150 + 150):
        simulation = Simulation(seed)
        simulation.run()
        assert simulation.applied == {(s, v) for s in range(simulation.last) for v in range(simulation.leaves)}, seed
        due = {step for step in range(1, simulation.last) if simulation.is_planned(step)}
        assert due <= simulation.evaluated, seed
        for id_, worker in simulation.workers.items():
            first = 0 if id_ < simulation.num_workers else worker.seen[0]
            assert {step for step in due if step >= first} <= set(worker.seen), seed


def tasks(max_staleness: int = 0, last: int = 9) -> Tasks:
    found = Tasks(2, 0, last, max_staleness, lambda step: step == 4)
    found.begin([0, 1], 0)
    return found


Answers = list[tuple[int, Task | Barrier]]


def ask(tasks: Tasks, *workers: int, serial: int = 0, floor: int = 0, wants: bool = False) -> Answers:
    for worker in workers:
        tasks.ask(worker, serial, floor, wants)
    return tasks.answers()


def test_nobody_begins_before_all_are_there() -> None:
    one = tasks()
    assert ask(one, 0) == []
    assert ask(one, 1) == [(0, Task(0, 0)), (1, Task(0, 1))]


def test_a_worker_that_is_too_far_ahead_waits_for_the_slowest() -> None:
    one = tasks(max_staleness=1)
    assert ask(one, 0, 1) == [(0, Task(0, 0)), (1, Task(0, 1))]
    for task in (Task(1, 0), Task(1, 1)):
        one.done(0, 1) if task.leaf == 0 else one.done(1, 0)
        assert ask(one, 1) == [(1, task)]
    one.done(1, 1)
    assert ask(one, 1) == []
    assert one.done(0, 0) == [0, 1]
    assert one.answers() == [(1, Task(2, 0))]


def test_the_task_of_a_lost_worker_goes_to_another_one_first() -> None:
    one = tasks(max_staleness=5)
    ask(one, 0, 1)
    assert one.begin([1, 2], 0) == 1
    assert one.done(0, 1) == []
    assert ask(one, 1) == [(1, Task(0, 0))]


def test_who_did_not_hear_of_its_task_is_given_it_again() -> None:
    one = tasks(max_staleness=5)
    ask(one, 0, 1)
    one.begin([0, 1], 0)
    assert ask(one, 1, 0) == [(1, Task(0, 1)), (0, Task(0, 0))]


def test_a_barrier_that_is_asked_for_comes_after_the_steps_that_have_begun() -> None:
    one = tasks(max_staleness=5)
    ask(one, 0, 1)
    one.done(0, 0)
    assert ask(one, 0) == [(0, Task(1, 0))]
    one.done(1, 0)
    assert ask(one, 0, wants=True) == [(0, Task(1, 1))]
    one.done(1, 1)
    assert ask(one, 0) == []
    assert one.done(0, 1) == [0, 1]
    assert one.answers() == [(0, Barrier(2, 1))]
    assert ask(one, 0, serial=1, floor=2) == []
    assert ask(one, 1) == [(1, Barrier(2, 1))]
    assert ask(one, 1, serial=1, floor=2) == [(0, Task(2, 0)), (1, Task(2, 1))]


def begun_anew() -> Tasks:
    """In the place of a first server that was lost when worker 1 was at the barrier of step 4, and worker 0 was not."""
    found = Tasks(2, 0, 9, 0, lambda step: step == 4)
    found.begin([0, 1], reached=4)
    return found


def test_a_server_that_begins_anew_stops_nobody_at_what_the_job_has_left_behind() -> None:
    """Worker 1 asks for nothing before worker 0 is where it is."""
    assert ask(begun_anew(), 0) == [(0, Task(0, 0))]


def test_who_is_further_is_not_waited_for_at_the_barrier_of_one_who_joins() -> None:
    one = begun_anew()
    assert ask(one, 0, serial=NOWHERE, wants=True) == [(0, Barrier(0, 1))]
    assert ask(one, 0, serial=1) == [(0, Task(0, 0))]
