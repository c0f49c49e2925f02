"""This machine and hosts of the user's own that join it: places for workers, by host.

What an agent (`lockstep.agent`) and the supervisor say to each other about processes is here; who may join, and what
its going means for the job, is in `lockstep.supervisor.guests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lockstep import addresses
from lockstep.engines import Command, OnExit, Role, Site
from lockstep.engines.local import Local, describe_status, is_death
from lockstep.wire import Message

MAX_NAME = 64
Send = Callable[[Message], None]


@dataclass
class Host:
    """One that has joined."""

    name: str
    slots: int
    send: Send
    workers: dict[int, int] = field(default_factory=dict)
    """Which of its places each of its workers has."""


@dataclass(frozen=True)
class Started:
    """A process on a host that joined, until it is known to have ended."""

    host: Host
    log: Path
    on_exit: OnExit


class Hosts:
    """An engine whose room grows and shrinks. Servers, and as many workers as the user has asked for here, run here."""

    assigns_devices = False

    def __init__(self, site: Site) -> None:
        assert site.listen is not None
        self.place = addresses.to_listen(site.listen)
        self.host = self.place.host
        self._local = Local(site)
        self._num_local = site.num_workers
        """How many workers are to run here."""
        self._uses_gpus = site.uses_gpus
        self._here: set[int] = set()
        """The workers on this machine."""
        self._started: dict[int, Started] = {}
        self._hosts: dict[int, Host] = {}
        self._unwanted: set[int] = set()
        """Killed before they were started."""
        self._next = 0
        self._empty = asyncio.Event()

    # The engine

    async def open(self) -> None:
        """There is nothing to get hold of."""

    async def start(self, command: Command, on_exit: OnExit) -> None:
        if command.id in self._unwanted:
            return
        host = self._choose(command.role)
        if host is None:
            await self._start_here(command, on_exit)
            return
        slot = next(slot for slot in range(host.slots) if slot not in host.workers.values())
        host.workers[command.id] = slot
        self._started[command.id] = Started(host, log_on(command.log, host.name), on_exit)
        self._write(command.id, "")
        variables = {name: value for name, value in command.environment.items() if not name.startswith("LOCKSTEP_")}
        host.send({"type": "start", "id": command.id, "slot": slot, "gpu": self._uses_gpus, "variables": variables})

    async def _start_here(self, command: Command, on_exit: OnExit) -> None:
        if command.role != "worker":
            await self._local.start(command, on_exit)
            return

        def free(id_: int, how: str, by_death: bool) -> None:
            self._here.discard(id_)
            on_exit(id_, how, by_death)

        self._here.add(command.id)
        try:
            await self._local.start(command, free)
        except OSError:
            self._here.discard(command.id)
            raise

    def _choose(self, role: Role) -> Host | None:
        """Where a process goes; None is here: as many as are to run here, servers, and what fits nowhere else."""
        if role != "worker" or len(self._here) < self._num_local:
            return None
        free = [host for host in self._hosts.values() if len(host.workers) < host.slots]
        return max(free, key=lambda host: host.slots - len(host.workers), default=None)

    def kill(self, id_: int) -> None:
        """Its place is free at once, so that a replacement finds it."""
        self._here.discard(id_)
        if (started := self._started.get(id_)) is None:
            self._unwanted.add(id_)
            self._local.kill(id_)
            return
        started.host.workers.pop(id_, None)
        started.host.send({"type": "kill", "id": id_})

    async def close(self, grace_seconds: float) -> None:
        """Agents that were told of the end (`send_all`) end their processes, then their connections."""
        await asyncio.gather(self._local.close(grace_seconds), self._wait_for_hosts(grace_seconds))

    async def _wait_for_hosts(self, grace_seconds: float) -> None:
        if self._hosts:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), 2 * grace_seconds)

    # Hosts

    @property
    def room(self) -> int:
        """How many workers fit here and there."""
        return max(self._num_local, len(self._here)) + sum(host.slots for host in self._hosts.values())

    def resize(self, workers: int) -> int:
        """The job is to have so many workers; how many of them here: as before, unless that is more than
        there are to be, or others find no place elsewhere."""
        elsewhere = sum(host.slots for host in self._hosts.values())
        self._num_local = min(workers, max(self._num_local, workers - elsewhere))
        return self._num_local

    def add(self, name: str, slots: int, send: Send) -> int:
        """A host joins; its number. No two have the same name."""
        taken = {host.name for host in self._hosts.values()}
        names = [name, *(f"{name}-{count}" for count in range(2, len(taken) + 3))]
        self._hosts[self._next] = Host(next(one for one in names if one not in taken), slots, send)
        self._next += 1
        return self._next - 1

    def remove(self, number: int) -> tuple[str, tuple[int, ...]]:
        """A host is gone; its name and its workers, of which nothing more will be heard."""
        host = self._hosts.pop(number)
        for id_, started in list(self._started.items()):
            if started.host is host:
                del self._started[id_]
        if not self._hosts:
            self._empty.set()
        return host.name, tuple(host.workers)

    @property
    def numbers(self) -> list[int]:
        return list(self._hosts)

    def name(self, number: int) -> str:
        return self._hosts[number].name

    def send(self, number: int, message: Message) -> None:
        self._hosts[number].send(message)

    def send_all(self, message: Message) -> None:
        for host in self._hosts.values():
            host.send(message)

    def host_of(self, id_: int) -> str:
        """The name of the host that a process was given to; empty for this machine."""
        return self._started[id_].host.name if id_ in self._started else ""

    def take_back(self, id_: int) -> int | None:
        """The place of a worker that was refused takes no other one; the number of its host if that was its last."""
        if (started := self._started.get(id_)) is None:
            return None
        started.host.slots -= 1
        empty = [number for number, host in self._hosts.items() if host is started.host and host.slots == 0]
        return empty[0] if empty else None

    # What agents say of processes

    def write_log(self, number: int, id_: int, text: str) -> None:
        """Add to the log of a process."""
        if self._of(number, id_) is not None:
            self._write(id_, text)

    def _write(self, id_: int, text: str) -> None:
        """A log that cannot be written ends nothing."""
        with contextlib.suppress(OSError), self._started[id_].log.open("a", encoding="utf-8") as log:
            log.write(text)

    def ended(self, number: int, id_: int, status: int) -> None:
        if (started := self._of(number, id_)) is not None:
            del self._started[id_]
            started.host.workers.pop(id_, None)
            started.on_exit(id_, describe_status(status), is_death(status))

    def _of(self, number: int, id_: int) -> Started | None:
        """A process of this host, and of no other: agents speak of their own only."""
        started = self._started.get(id_)
        return started if started is not None and started.host is self._hosts.get(number) else None


def log_on(log: Path, host: str) -> Path:
    """The name of a process's log if it runs on a host that joined."""
    return log.with_name(f"{log.stem}-{host}{log.suffix}") if host else log


def clean_name(name: str) -> str:
    """A host's name as it may be a part of a file's."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:MAX_NAME].strip(".-") or "host"
