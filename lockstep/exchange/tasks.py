"""What the first server of `async` hands out: which leaf of which step to whom, and when everyone stops. Pure.

A worker asks, and is answered with a task or with a barrier, sometimes later. Tasks are handed out in order, but those
of step s only when every leaf of step s - 1 - max_staleness has been applied. A task whose worker is gone is handed out
again. At a barrier everything before it has been applied and nothing after it is handed out: all workers see the same
weights there, and it ends when each has asked again. The start is a barrier too, and so is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Key = tuple[int, int]
"""(step, leaf)"""
NOWHERE = -1
"""What is said by one who joins instead of the number of its last barrier."""


@dataclass(frozen=True)
class Task:
    step: int
    leaf: int


@dataclass(frozen=True)
class Barrier:
    step: int
    """So many steps are done."""
    serial: int
    """Which barrier it is: there may be two at one step."""


class Tasks:
    def __init__(
        self, num_leaves: int, first: int, last: int, max_staleness: int, is_planned: Callable[[int], bool]
    ) -> None:
        self.floor = first
        """Every leaf of the steps before this one has been applied, by all servers."""
        self.held: int | None = first
        """The step of the barrier at which everyone is stopped; None while they work."""
        self._num_leaves = num_leaves
        self._last = last
        self._max_staleness = max_staleness
        self._may_stop = is_planned
        self._serial = 0
        self._is_new, self._reached = True, first
        self._barrier = first
        """No task of this step is handed out, nor of a later one."""
        self._next: Key = (first, 0)
        self._given: dict[Key, int] = {}
        self._again: set[Key] = set()
        """Tasks whose worker is gone."""
        self._done: set[Key] = set()
        self._members: set[int] = set()
        self._asked: set[int] = set()
        """Members that have asked for something since the generation began."""
        self._passed: dict[int, int] = {}
        """The last barrier that each member has behind it."""
        self._waiting: list[int] = []

    def begin(self, members: Iterable[int], reached: int) -> int:
        """A new generation: who is not in it computes nothing any more. The number of tasks to be handed out again.

        `reached` is the newest step in which any member is. If that is beyond where a server begins, then the job has
        left that behind, and nobody is to be stopped there.
        """
        if self._is_new and reached > self.floor:
            self.held, self._barrier = None, self._following(self.floor)
        self._is_new, self._reached = False, reached
        self._members, self._asked = set(members), set()
        self._waiting.clear()
        self._passed = {id_: serial for id_, serial in self._passed.items() if id_ in self._members}
        lost = [key for key, id_ in self._given.items() if id_ not in self._members]
        for key in lost:
            del self._given[key]
        self._again.update(lost)
        return len(lost)

    def ask(self, worker: int, serial: int, floor: int, wants_barrier: bool) -> list[int]:
        """A worker wants something to do. `floor` and `serial` tell a server that began anew where the others are, and
        may show that steps are finished."""
        self._advance(floor)
        finished = self._finish()
        if serial > self._serial:
            self._catch_up(serial)
        # The first barrier of a server that began anew has the number of the very first, but is at another step.
        self._passed[worker] = serial if self.held is None or floor >= self.held else NOWHERE
        if wants_barrier and self.held is None:
            self._draw_barrier()
        self._asked.add(worker)
        if worker not in self._waiting:
            self._waiting.append(worker)
        return finished

    def _draw_barrier(self) -> None:
        """As soon as the steps are done that have been begun."""
        step, leaf = self._next
        self._barrier = min(self._barrier, step + (leaf > 0))

    def _catch_up(self, serial: int) -> None:
        """A server that began anew meets workers that have gone on. Someone may be waited for at a planned barrier that
        it has not seen, so that is held once more."""
        is_held = self._is_planned(self.floor) and self._reached <= self.floor
        self._serial = serial + is_held
        self.held = self.floor if is_held else None
        self._barrier = self.floor if is_held else self._following(self.floor)

    def _advance(self, floor: int) -> None:
        """Take from others that everything before this step is done."""
        if floor <= self.floor:
            return
        self.floor = floor
        self._next = max(self._next, (floor, 0))
        self._barrier = max(self._barrier, floor)
        self._given = {key: id_ for key, id_ in self._given.items() if key[0] >= floor}
        self._again = {key for key in self._again if key[0] >= floor}
        self._done = {key for key in self._done if key[0] >= floor}

    def done(self, step: int, leaf: int) -> list[int]:
        """A leaf has been applied by all servers; the steps that are finished by that."""
        key = step, leaf
        self._given.pop(key, None)
        self._again.discard(key)
        if step >= self.floor:
            self._done.add(key)
        return self._finish()

    def _finish(self) -> list[int]:
        finished = []
        while all((self.floor, one) in self._done for one in range(self._num_leaves)):
            finished.append(self.floor)
            self._advance(self.floor + 1)
        return finished

    def answers(self) -> list[tuple[int, Task | Barrier]]:
        """What can be said to those who wait, in the order in which they asked."""
        self._hold_or_release()
        found = [(worker, answer) for worker in self._waiting if (answer := self._answer(worker)) is not None]
        self._waiting = [worker for worker in self._waiting if worker not in dict(found)]
        return found

    def _hold_or_release(self) -> None:
        if self.held is not None and self.held < self._last and self._is_passed(self.held):
            self._barrier = self._following(self.held)
            self.held = None
        if self.held is None and any(self._passed[id_] == NOWHERE for id_ in self._waiting):
            self._draw_barrier()
        if self.held is None and self.floor >= self._barrier:
            self.held = self.floor
            self._serial += 1

    def _is_passed(self, barrier: int) -> bool:
        """Whether everyone has it behind it. Those who were further when a server was lost are not heard of before the
        others are there too."""
        awaited = self._members if barrier >= self._reached else self._asked
        return bool(awaited) and all(self._passed.get(id_) == self._serial for id_ in awaited)

    def _is_planned(self, step: int) -> bool:
        return step == self._last or self._may_stop(step)

    def _following(self, step: int) -> int:
        return next(one for one in range(step + 1, self._last + 1) if self._is_planned(one))

    def _answer(self, worker: int) -> Task | Barrier | None:
        if self.held is not None:
            return Barrier(self.held, self._serial) if self._passed[worker] != self._serial else None
        if (key := self._choose(worker)) is None:
            return None
        self._given[key] = worker
        return Task(*key)

    def _choose(self, worker: int) -> Key | None:
        """What the worker has been given already and did not hear of, what another one left, or the next."""
        for key, id_ in self._given.items():
            if id_ == worker:
                return key
        if self._again:
            self._again.remove(key := min(self._again))
            return key
        while True:
            step, leaf = key = self._next
            if step >= self._barrier or step > self.floor + self._max_staleness:
                return None
            self._next = (step, leaf + 1) if leaf + 1 < self._num_leaves else (step + 1, 0)
            if key not in self._done:
                return key
