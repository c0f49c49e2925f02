"""The process group of one generation, and how to leave it at any moment.

Works of gloo cannot be polled, only waited for, and a peer that stopped never answers. So one thread blocks in
`wait()`, and the loop waits on a condition: when a new generation comes, it abandons thread, group and the memory that
is received into, all together. Only `Group` refers to the process group, because dropping the last reference is what
closes its sockets and wakes the peers. No collectives here: dropping a group with a pending one blocks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from lockstep import addresses
from lockstep.device import Device
from lockstep.exchange.link import Traffic
from lockstep.generation import Generation

# A slow peer is not a dead one: the supervisor decides who is dead, never a timeout in the data plane.
PATIENCE = timedelta(hours=24)
CONNECTING = timedelta(seconds=30)
"""How long a process group may take to form when all members are there: whoever waits in it for one that has gone again
cannot be woken."""
LOOK_SECONDS = 0.001, 0.01
"""After how long, at first and at most, who waits for the other members looks again whether they are there."""
Transfer = tuple[torch.Tensor, int, int]
"""What is sent or received, the peer, and a tag."""


class Lost(Exception):  # noqa: N818
    """An exchange did not finish: a new generation is there, or a peer failed."""


class PeerFailed(Lost):
    """The connection to a peer failed: a member by its rank, or a server by its number; neither where it is not known
    which."""

    def __init__(self, text: str, rank: int | None = None, server: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank
        self.server = server


class Task:
    """Something that a thread does, and how it ended."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.finished = False
        self.error: str | None = None
        self.peer: int | None = None
        """The rank with which it failed."""
        self.value: Any = None


class Waiter:
    """A thread that blocks on behalf of the loop. It is a daemon: an abandoned one ends later, without harm."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        threading.Thread(target=_run, args=(self._tasks, changed), name="exchange", daemon=True).start()

    def submit(self, work: Callable[[], Any]) -> Task:
        task = Task(work)
        self._tasks.put(task)
        return task

    def close(self) -> None:
        """Let the thread end when it is done with what it waits for."""
        self._tasks.put(None)


def _run(tasks: queue.SimpleQueue[Task | None], changed: threading.Condition) -> None:
    while (task := tasks.get()) is not None:
        value, error, peer = None, None, None
        try:
            value = task.work()
        except PeerFailed as problem:
            error, peer = str(problem), problem.rank
        except Exception as problem:  # only its text is kept: a traceback would keep the group alive
            error = f"{type(problem).__name__}: {problem}"
        with changed:
            task.value, task.error, task.peer, task.finished = value, error, peer, True
            changed.notify_all()
        del task, value


class Group:
    """Point-to-point transfers between the members of a generation."""

    def __init__(
        self,
        generation: Generation,
        rank: int,
        device: Device,
        host: str,
        changed: threading.Condition,
        traffic: Traffic | None = None,
    ) -> None:
        self.generation = generation
        self.rank = rank
        self.traffic = traffic or Traffic()
        self._device = device
        self._host = host
        self._changed = changed
        self._waiter = Waiter(changed)
        self._group: Any = None
        self._posted: list[tuple[Any, int | None]] = []
        self._buffers: dict[int, torch.Tensor] = {}

    def buffer(self, tag: int, like: torch.Tensor) -> torch.Tensor:
        """Memory to receive into, for one tag the same in every exchange: fresh memory costs a page fault for every 4
        KiB. It goes with the group, because a thread that was left behind may still write to it."""
        found = self._buffers.get(tag)
        if found is None or found.shape != like.shape:
            found = self._buffers[tag] = torch.empty_like(like)
        return found

    def connect(self, abandoned: Callable[[], bool]) -> None:
        """Meet the other members; Lost when a new generation is there first."""
        arguments = self.generation, self.rank, self._device, self._host, abandoned
        self._group = self._finish(self._waiter.submit(lambda: _process_group(*arguments)), abandoned)
        if self._group is None:
            raise Lost("a new generation")

    def post(self, sends: list[Transfer], receives: list[Transfer]) -> None:
        """Start transfers. Nothing blocks here; PeerFailed if a connection is broken already."""
        works: list[tuple[Any, int | None]] = []
        if self._device.backend != "nccl":
            works += [(_started(self._group.recv, *receive), receive[1]) for receive in receives]
            works += [(_started(self._group.send, *send), send[1]) for send in sends]
        elif sends or receives:
            works.append((Unit(self._group, sends, receives), None))
        self.traffic.add(sum(map(_num_bytes, sends)), sum(map(_num_bytes, receives)))
        self._posted += works

    def wait(self, abandoned: Callable[[], bool]) -> None:
        """Until everything posted so far is done; Lost when a peer failed or a new generation is there."""
        works, self._posted = self._posted, []
        self._finish(self._waiter.submit(partial(_wait_all, works, self._device)), abandoned)

    def _finish(self, task: Task, abandoned: Callable[[], bool]) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: task.finished or abandoned())
        if not task.finished:
            raise Lost("a new generation")
        if task.error is not None:
            raise PeerFailed(task.error, task.peer)
        return task.value

    def drop(self) -> None:
        """Close the sockets; whoever waits for this member wakes up."""
        if self._device.backend == "nccl" and self._group is not None:
            self._group.abort()
        self._posted.clear()
        self._group = None
        self._waiter.close()


class Unit:
    """Transfers that NCCL runs as one. They are started by whoever waits for them: the first one between two members
    connects them, which blocks until both are there."""

    def __init__(self, group: Any, sends: list[Transfer], receives: list[Transfer]) -> None:
        self._group = group
        self._sends = sends
        self._receives = receives

    def wait(self, _: timedelta) -> None:
        self._group._start_coalescing()
        for tensor, peer, tag in self._receives:
            self._group.recv([tensor], peer, tag)
        for tensor, peer, tag in self._sends:
            self._group.send([tensor], peer, tag)
        self._group._end_coalescing().wait()


def _num_bytes(transfer: Transfer) -> int:
    return transfer[0].numel() * transfer[0].element_size()


def _started(transfer: Callable[..., Any], tensor: torch.Tensor, peer: int, tag: int) -> Any:
    try:
        return transfer([tensor], peer, tag)
    except RuntimeError as error:
        raise PeerFailed(str(error), peer) from None


def _wait_all(works: list[tuple[Any, int | None]], device: Device) -> None:
    for work, peer in works:
        try:
            work.wait(PATIENCE)
        except RuntimeError as error:
            raise PeerFailed(str(error), peer) from None
    device.finish()


def listen(host: str) -> tuple[TCPStore, str]:
    """The store that this process hosts if it becomes the first member, and its address."""
    listener = addresses.listener(host)
    port = listener.getsockname()[1]
    store = TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
    )
    return store, f"{host}:{port}"


def _process_group(generation: Generation, rank: int, device: Device, host: str, abandoned: Callable[[], bool]) -> Any:
    """None if the generation is abandoned before everyone is there."""
    store_host, _, port = generation.members[0].address.rpartition(":")
    store = TCPStore(store_host, int(port), is_master=False, wait_for_workers=False, timeout=CONNECTING)
    prefixed = PrefixStore(f"{generation.secret}/{generation.number}", store)
    if not _meet(prefixed, generation, rank, abandoned):
        return None
    if device.backend == "nccl":
        prefixed.set_timeout(PATIENCE)  # members are connected by their first transfer, and one may still compute
        return dist.ProcessGroupNCCL(prefixed, rank, len(generation), dist.ProcessGroupNCCL.Options())
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = CONNECTING
    return dist.ProcessGroupGloo(prefixed, rank, len(generation), options)


def _meet(store: PrefixStore, generation: Generation, rank: int, abandoned: Callable[[], bool]) -> bool:
    """Wait for everyone, or until the generation is abandoned: False. A process group that is begun without the others
    waits for them where it cannot be left, and with it a thread and its sockets."""
    store.set(f"here/{rank}", "")
    everyone = [f"here/{member}" for member in range(len(generation))]
    pause, longest = LOOK_SECONDS
    while not abandoned():
        if store.check(everyone):
            return True
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return False
