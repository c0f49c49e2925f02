"""Processes as steps of a Slurm job, each started by an srun of its own from the node on which `lockstep` runs.

Where a process goes is decided in `slurm_nodes`, what Slurm's commands say is read in `slurm_text`; both are pure. What
`lockstep submit slurm` writes is in `lockstep.sbatch`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from typing import Any

from lockstep.engines import Command, OnExit, Site
from lockstep.engines import slurm_nodes as nodes
from lockstep.engines import slurm_text as text
from lockstep.errors import UserError

CALL_SECONDS = 20.0
"""How long one of Slurm's commands may take; the controller of a large site can be slow."""
LOOK_SECONDS = 5.0
"""How often the nodes are looked at while a process waits for one."""
APPEAR_SECONDS = 0.1
"""How often the log of a process that is being started is looked at."""
END_SECONDS = 5.0
"""How long an srun may take to end after its step was killed, before it is killed too."""
CANCEL_SECONDS = 0.3
"""How often a step is killed that Slurm still knows."""
AVOID_SECONDS = 15.0
"""How long a node that did not take a process is given no other one."""
MAX_REFUSALS = 3
"""So often a step may be refused on nodes that seem to be well, before that counts as a mistake in what was asked."""


LOG_BYTES = 1 << 14
"""How much of a log is looked at, at its beginning or at its end."""


class SlurmError(OSError):
    """One of Slurm's commands did not do what it was called for; the sentence is its own."""


@dataclass(eq=False)
class Step:
    """A process, from the moment it has a place."""

    command: Command
    node: str
    name: str
    srun: Process | None = None
    offset: int = 0
    """Where its part of the log begins."""
    number: str | None = None
    """`job.step`; known when it runs."""
    shares: bool = False
    """Whether it may have cores that Slurm takes for those of others."""
    is_unwanted: bool = False
    ending: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self.srun is not None and self.srun.returncode is not None

    def first_words(self) -> str:
        return self._read(self.offset)

    def last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._read(max(self.offset, self.command.log.stat().st_size - LOG_BYTES))
        return ""

    def _read(self, start: int) -> str:
        with contextlib.suppress(OSError), self.command.log.open("rb") as log:
            log.seek(start)
            return log.read(LOG_BYTES).decode(errors="replace")
        return ""


@dataclass
class Slurm:
    site: Site
    host: str = ""
    assigns_devices: bool = True
    _job: str = ""
    _room: dict[str, int] = field(default_factory=dict)
    """How many workers fit on each node, in the order of the allocation."""
    _lost: set[str] = field(default_factory=set)
    _has_shrunk: bool = False
    """Whether Slurm has taken a node away. From then on it does not see that steps on the others end, and would let
    new ones wait for their cores for ever."""
    _avoided: dict[str, float] = field(default_factory=dict)
    """Nodes that did not take a process, and until when they are given none."""
    _steps: dict[int, Step] = field(default_factory=dict)
    """Those that hold a place, by the number of their command."""
    _unwanted: set[int] = field(default_factory=set)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _watchers: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be room."""
    _is_closed: bool = False

    # The allocation

    async def open(self) -> None:
        self._job, listed = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NODELIST", "")
        if not self._job or not listed:
            raise UserError(
                "--engine slurm runs inside a Slurm job, and this is none: submit one with `lockstep submit slurm`, or "
                "get an allocation with salloc"
            )
        try:
            names = (await call("scontrol", "show", "hostnames", listed)).split()
            counts = text.parse_counts(os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
            facts = text.parse_nodes(await call("scontrol", "--oneliner", "show", "node", listed))
        except (SlurmError, ValueError) as error:
            raise UserError(f"cannot read the allocation of the Slurm job {self._job}: {error}") from None
        gpus = os.environ.get("SLURM_GPUS_ON_NODE", "") if self.site.uses_gpus else ""
        per_worker = text.cpus_per_worker(self.site)
        threads = max((one.threads_per_core for one in facts.values()), default=1)
        cpus = dict(zip(names, counts, strict=True))
        self._room = nodes.slots(cpus, per_worker, threads, int(gpus) if gpus.isdigit() else None)
        nodes.check_room(self._room, self.site, per_worker)
        this = os.environ.get("SLURMD_NODENAME")
        others = [facts[name].address for name in names if name in facts and name != this]
        own = [facts[this].address] if this in facts else []
        self.host = await asyncio.to_thread(_address_towards, [*others, *own])
        await self._look()

    async def _look(self) -> None:
        """Which nodes are lost. One that Slurm gave up is no longer in the list of the job, even when it is back."""
        with contextlib.suppress(SlurmError):  # nothing is known to be lost because the controller is slow
            listed = (await call("squeue", "--noheader", f"--jobs={self._job}", "--format=%N")).strip()
            if not listed:
                return
            names = (await call("scontrol", "show", "hostnames", listed)).split()
            facts = text.parse_nodes(await call("scontrol", "--oneliner", "show", "node", listed))
            up = {name for name in names if name in facts and facts[name].is_up}
            for node in set(self._room) - up - self._lost:
                self.site.note(f"node {node} is lost: the job goes on without it")
            self._lost = set(self._room) - up
            self._has_shrunk |= len(names) < len(self._room)
            self._changed.set()

    # Starting

    async def start(self, command: Command, on_exit: OnExit) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._start(command, on_exit)
        finally:
            self._tasks.discard(task)

    async def _start(self, command: Command, on_exit: OnExit) -> None:
        refusals = 0
        while command.id not in self._unwanted and not self._is_closed:
            node = self._place(command)
            if node is None:
                await self._wait_for_room()
                continue
            step = Step(command, node, text.step_name(command, os.getpid()), shares=self._has_shrunk)
            self._steps[command.id] = step
            await self._launch(step)
            if await self._appears(step):
                self._avoided.pop(node, None)
                watcher = asyncio.create_task(self._watch(step, on_exit))
                self._watchers.add(watcher)
                watcher.add_done_callback(self._watchers.discard)
                return
            await self._end(step)
            del self._steps[command.id]
            await self._look()
            if self._is_void(step):
                continue
            self._avoid(step)
            refusals += not text.is_passing(step.last_words())
            if refusals == MAX_REFUSALS:
                raise OSError(text.last_words(step.last_words()))

    def _place(self, command: Command) -> str | None:
        now = time.monotonic()
        avoided = {node for node, until in self._avoided.items() if until > now}
        running = [(step.command.role, step.node) for step in self._steps.values()]
        return nodes.place(
            command.role, self._room, running, self._lost | avoided, nodes.own_node(self._room, self.site)
        )

    async def _wait_for_room(self) -> None:
        """Until a process has ended; a node may be back at any time."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
            return
        await self._look()

    async def _launch(self, step: Step) -> None:
        command = step.command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        with command.log.open("ab") as log:
            step.offset = log.tell()
            step.srun = await asyncio.create_subprocess_exec(
                *text.step_arguments(command, self.site, step.node, step.name, step.shares),
                env={**text.clean_environment(os.environ), **command.environment},
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _appears(self, step: Step) -> bool:
        """Wait until the process runs. False if it never will: srun gave up, the node is lost, or nobody wants it."""
        looked = time.monotonic()
        while (number := text.step_number(step.first_words())) is None:
            if step.has_ended:
                number = text.step_number(step.first_words())  # it may have been very quick
                break
            if self._is_void(step):
                return False
            await asyncio.sleep(APPEAR_SECONDS)
            if time.monotonic() - looked > LOOK_SECONDS:
                await self._look()
                looked = time.monotonic()
        step.number = number
        return number is not None

    def _is_void(self, step: Step) -> bool:
        """Whether it is of no use to wait for a step to begin."""
        is_wanted = not step.is_unwanted and not self._is_closed
        return not is_wanted or step.node in self._lost or step.shares != self._has_shrunk

    def _avoid(self, step: Step) -> None:
        """Another node is tried first; Slurm may need minutes to see that one is lost."""
        if step.node not in self._avoided:
            why = text.last_words(step.last_words())
            self.site.note(f"node {step.node} does not take {step.command.role} {step.command.id}: {why}")
        self._avoided[step.node] = time.monotonic() + AVOID_SECONDS

    # Ending

    async def _watch(self, step: Step, on_exit: OnExit) -> None:
        assert step.srun is not None
        status = await step.srun.wait()
        if step.ending is not None:
            await step.ending
        elif status < 0:
            await self._end(step)  # without its srun the process may live on
        is_clear = step.is_unwanted or status == 0 or 128 < status <= 128 + 64
        if not is_clear:
            await self._look()
        how, is_death = text.verdict(status, step.last_words(), step.node, step.node not in self._lost)
        if step.is_unwanted:  # srun may say that all is well if it was quick
            how, is_death = "was killed by SIGKILL", True
        del self._steps[step.command.id]
        on_exit(step.command.id, how, is_death)
        if is_clear and status != 0:
            await self._look()
        self._changed.set()

    def kill(self, id_: int) -> None:
        self._unwanted.add(id_)
        step = self._steps.get(id_)
        if step is not None and not step.is_unwanted:
            step.is_unwanted = True
            step.ending = asyncio.create_task(self._end(step))
            self._tasks.add(step.ending)
            step.ending.add_done_callback(self._tasks.discard)
        self._changed.set()

    async def _end(self, step: Step) -> None:
        """The step first, because a process whose srun is killed may live on. An srun that has not begun it, or does
        not end, is told to give it up; only then is it killed, or Slurm would keep a step without a process."""
        await self._cancel(step)
        srun = step.srun
        for end in (None if step.number is not None else signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if srun is None or srun.returncode is not None:
                break
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    srun.send_signal(end)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(srun.wait(), END_SECONDS)
        for _ in range(round(END_SECONDS / CANCEL_SECONDS) if srun is not None else 0):
            if not await self._cancel(step):
                break
            await asyncio.sleep(CANCEL_SECONDS)  # its process may have been on the way when its srun gave up

    async def _cancel(self, step: Step) -> bool:
        """Kill a step if Slurm knows it; whether it does."""
        found: list[str] = []
        with contextlib.suppress(SlurmError):
            found = await self._find(step.name)
            if found:
                await call("scancel", "--signal=KILL", *found)
        return bool(found)

    async def _find(self, name: str) -> list[str]:
        """The numbers of the steps with a name."""
        listing = await call("squeue", "--noheader", "--steps", f"--jobs={self._job}", "--format=%i %j")
        return text.parse_steps(listing, name)

    async def close(self, grace_seconds: float) -> None:
        self._is_closed = True
        self._changed.set()
        if self._watchers:
            await asyncio.wait(list(self._watchers), timeout=grace_seconds)
        for id_ in list(self._steps):
            self.kill(id_)
        while waiting := [*self._watchers, *self._tasks]:
            await asyncio.wait(waiting)


async def call(*arguments: str) -> str:
    """What one of Slurm's commands prints."""
    environment = text.clean_environment(os.environ)
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    except OSError as error:
        raise SlurmError(f"{arguments[0]} cannot be called ({error.strerror})") from None
    try:
        out, err = await asyncio.wait_for(process.communicate(), CALL_SECONDS)
    except TimeoutError:
        raise SlurmError(f"{arguments[0]} did not answer within {CALL_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise SlurmError(text.last_words(err.decode(errors="replace")))
    return out.decode(errors="replace")


def _address_towards(names: list[str]) -> str:
    """The address of this host on the way to the first of these that is known; nothing is sent."""
    for name in names:
        with contextlib.suppress(OSError):
            family, kind, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as towards:
                towards.connect(address)
                return str(towards.getsockname()[0])
    raise UserError(f"none of the nodes of this job has an address that is known here: {', '.join(names)}")
