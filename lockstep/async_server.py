"""A server of `async`: `python -m lockstep.async_server`. It keeps a part of the weights, and updates it as gradients
come.

The first one also hands out the tasks (`exchange/tasks.py`) and writes the rows of metrics. What it keeps outlives
generations; a server that is lost is replaced by one that begins at the newest checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep import checkpoint, injection
from lockstep.config import Job, Recipe
from lockstep.configfile import from_plain
from lockstep.data import open_dataset
from lockstep.data.source import Dataset
from lockstep.device import Device
from lockstep.exchange.board import Part
from lockstep.exchange.link import Connection, Header, Kind, Traffic
from lockstep.exchange.tasks import NOWHERE, Task, Tasks
from lockstep.generation import Generation
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.reporter import figures
from lockstep.server import Server, report, run
from lockstep.shard import UNKNOWN, Shard
from lockstep.wire import BadFrame, Message


@dataclass
class Rows:
    """The rows of metrics that the first server writes: means over all leaves of the steps since the last row."""

    recipe: Recipe
    learning_rate: Callable[[int], float]
    tally: list[list[float]]
    last: int
    traffics: list[Traffic] = field(default_factory=list)
    """Of every connection that there ever was."""
    reissued: int = 0
    """Tasks that were handed out again."""
    _staleness: Counter[int] = field(default_factory=Counter)
    _counts: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _before: Traffic = field(default_factory=Traffic)
    _since: float = field(default_factory=time.perf_counter)
    _num_steps: int = 0
    _held_since: float | None = None

    def leaf(self, step: int, leaf: int, counts: list[float], staleness: int | None) -> None:
        """Loss and hits of a leaf, and how many updates its weights lacked when it came."""
        self._counts[step, leaf] = counts
        if staleness is not None:
            self._staleness[staleness] += 1

    def finish(self, step: int) -> dict[str, Any] | None:
        """All leaves of a step have come: a row, if one is due."""
        leaves = [self._counts.pop(key) for key in sorted(key for key in self._counts if key[0] <= step)]
        if leaves:
            self.tally.append([sum(column) / len(leaves) for column in zip(*leaves, strict=True)])
            self._num_steps += 1
        done = step + 1
        is_due = done == self.last or done % self.recipe.log_every == 0
        return self._row(done) if is_due and self._num_steps else None

    def hold(self, is_held: bool) -> None:
        """Time at a barrier is no time of training."""
        now = time.perf_counter()
        if is_held and self._held_since is None:
            self._held_since = now
        elif not is_held and self._held_since is not None:
            self._since += now - self._held_since
            self._held_since = None

    def _row(self, done: int) -> dict[str, Any]:
        now, tally, r = time.perf_counter(), self.tally, self.recipe
        seconds, self._since = max(1e-9, now - self._since), now
        sent, received = (sum(getattr(one, name) for one in self.traffics) for name in ("sent", "received"))
        row = {
            "step": done,
            **figures(tally, r),
            "lr": self.learning_rate(done - 1),
            "steps_per_second": self._num_steps / seconds,
            "images_per_second": self._num_steps * r.global_batch / seconds,
            "sent_bytes": sent - self._before.sent,
            "received_bytes": received - self._before.received,
            "staleness": buckets(self._staleness),
            "staleness_max": max(self._staleness, default=0),
            **({"reissued": self.reissued} if self.reissued else {}),
        }
        self._before = Traffic(sent, received)
        self._staleness.clear()
        self.tally, self._num_steps, self.reissued = [], 0, 0
        return row


def buckets(counts: Counter[int]) -> dict[str, int]:
    """How often each staleness occurred: 0, 1, then from a power of two to below the next, named by the first."""
    found: Counter[int] = Counter()
    for value, count in counts.items():
        found[1 << value.bit_length() - 1 if value else 0] += count
    return {str(start): found[start] for start in sorted(found)}


@dataclass
class Keeper:
    """What a server keeps from one generation to the next."""

    membership: Membership
    shard: Shard
    strike: Callable[[int, str], None]
    tasks: Tasks | None
    """Only the first one hands out tasks."""
    rows: Rows
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Service:
    """What a server does in one generation."""

    generation: Generation
    keeper: Keeper
    connections: dict[int, Connection] = field(default_factory=dict)
    is_over: bool = False

    @property
    def step(self) -> int:
        return self.keeper.shard.floor

    def begin(self) -> None:
        if self.keeper.tasks is not None:
            with self.keeper.lock:
                self.keeper.rows.reissued += self.keeper.tasks.begin(self.generation.ids, self.generation.step)

    def enter(self, worker: int, connection: Connection, length: int) -> bool:
        """Take a worker's connection into the generation; False if that is over, or it has one already."""
        with self.keeper.lock:
            if self.is_over or worker in self.connections or worker not in self.generation.ids:
                return False
            self.connections[worker] = connection
            self.keeper.rows.traffics.append(connection.traffic)
            return True

    def handle(self, worker: int, header: Header, part: Part | None) -> None:
        try:
            with self.keeper.lock:
                if not self.is_over:
                    self._handle(worker, header, part)
        except BadFrame:
            raise
        except BaseException as error:
            report(self.keeper.membership, error)

    def _handle(self, worker: int, header: Header, part: Part | None) -> None:
        keeper = self.keeper
        if header.kind == Kind.PUSH and part is not None:
            self._push(worker, header, part)
        elif header.kind == Kind.PULL:
            self._advance(header.step)
            self._send(worker, Header(Kind.WEIGHTS, count=keeper.shard.version % UNKNOWN), keeper.shard.weights())
        elif header.kind == Kind.FETCH:
            packed = keeper.shard.packed(header.level == 1, keeper.rows.tally)
            self._send(worker, Header(Kind.STATE), torch.frombuffer(bytearray(packed), dtype=torch.uint8))
        elif header.kind == Kind.ASK and keeper.tasks is not None:
            self._advance(header.step)
            serial, wants_barrier = header.index + NOWHERE, header.level == 1
            self._go_on(keeper.tasks, keeper.tasks.ask(worker, serial, header.step, wants_barrier))
        elif header.kind == Kind.DONE and keeper.tasks is not None:
            self._go_on(keeper.tasks, keeper.tasks.done(header.step, header.index))
        else:
            raise BadFrame(f"a worker sent {header.kind.name}")

    def _advance(self, floor: int) -> None:
        lost = self.keeper.shard.advance(floor)
        if lost:
            self.keeper.membership.send({"type": "lost_updates", "step": floor, "updates": lost})

    def _push(self, worker: int, header: Header, part: Part) -> None:
        shard, rows = self.keeper.shard, self.keeper.rows
        self.keeper.strike(header.step, "push")
        vector = shard.push(header.step, header.index, torch.from_numpy(part))
        if vector is not None and self.keeper.tasks is not None:  # others would never forget it
            before = (shard.version - 1) % UNKNOWN
            staleness = None if header.count == UNKNOWN else (before - header.count) % UNKNOWN
            rows.leaf(header.step, header.index, vector.counts.tolist(), staleness)
        self.connections[worker].send(Header(Kind.APPLIED, header.step, index=header.index))

    def _go_on(self, tasks: Tasks, finished: list[int]) -> None:
        """Report the steps that are finished, and tell those who wait what there is to do."""
        for step in finished:
            self._advance(step + 1)
            if (row := self.keeper.rows.finish(step)) is not None:
                self.keeper.membership.send({"type": "metrics", "row": row})
        for worker, answer in tasks.answers():
            if isinstance(answer, Task):
                header = Header(Kind.TASK, answer.step, index=answer.leaf, count=tasks.floor)
            else:
                header = Header(Kind.BARRIER, answer.step, index=answer.serial - NOWHERE)
            self.connections[worker].send(header)
        self.keeper.rows.hold(tasks.held is not None)

    def _send(self, worker: int, header: Header, payload: Tensor) -> None:
        view = payload.view(torch.uint8).numpy().data
        self.connections[worker].send(replace(header, num_bytes=view.nbytes), view)

    def close(self) -> None:
        with self.keeper.lock:
            self.is_over = True
            connections = list(self.connections.values())
        for connection in connections:
            connection.close()


def planned_barriers(recipe: Recipe, dataset: Dataset) -> Callable[[int], bool]:
    """Whether workers stop when so many steps are done, for an evaluation or a checkpoint."""
    steps_per_epoch, every = len(dataset.train) / recipe.global_batch, recipe.evaluation.every_steps

    def is_planned(done: int) -> bool:
        is_evaluated = every > 0 and done % every == 0
        return done > 0 and (is_evaluated or checkpoint.is_due(recipe.checkpoints, done, steps_per_epoch))

    return is_planned


def set_up(welcome: Message, membership: Membership, line: Line) -> Keeper:
    recipe, job = from_plain(welcome["config"], "the supervisor's configuration")
    recipe = replace(recipe, device="cpu", compile=False)
    dataset = open_dataset(recipe.data, recipe.seed)
    replica = Replica(recipe, dataset, welcome["num_steps"], Device("cpu", recipe.threads))
    first = 0
    if welcome["checkpoint"] is not None:
        with line.checkpoint(Path(welcome["checkpoint"])) as path:
            replica.load(checkpoint.load(path, dict(replica.named_state())))
            first = checkpoint.read_info(path).step
    else:
        replica.start()
    return keeper_of(membership, recipe, job, dataset, replica, welcome["slot"], first, welcome["last_step"])


def keeper_of(
    membership: Membership,
    recipe: Recipe,
    job: Job,
    dataset: Dataset,
    replica: Replica,
    slot: int,
    first: int,
    last: int,
) -> Keeper:
    tasks = Tasks(recipe.leaves, first, last, job.max_staleness, planned_barriers(recipe, dataset))
    return Keeper(
        membership=membership,
        shard=Shard(replica, job.servers, slot, first),
        strike=injection.striker(membership.id),
        tasks=tasks if slot == 0 else None,
        rows=Rows(recipe, replica.learning_rate, replica.tally, last),
    )


def start(membership: Membership, welcome: Message, line: Line) -> Server:
    keeper = set_up(welcome, membership, line)
    return Server(membership, lambda generation: Service(generation, keeper))


if __name__ == "__main__":
    run(start)
