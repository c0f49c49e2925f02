"""The supervisor at work: turns what happens into events for `machine`, and carries out what it decides.

It imports no torch. It alone writes the run directory's metrics, best.json and the list of good checkpoints.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import secrets
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from lockstep import addresses, strategies
from lockstep.configfile import to_plain
from lockstep.data.defects import too_many
from lockstep.engines import ENGINES, Command, Role
from lockstep.engines.hosts import Hosts
from lockstep.progress import Display, Sturdy
from lockstep.supervisor import aside, assembly, launching, messages, transfers
from lockstep.supervisor import events as e
from lockstep.supervisor.archive import ADDRESS_FILE, Archive
from lockstep.supervisor.control import Control
from lockstep.supervisor.guests import Guests, invitation
from lockstep.supervisor.loading import Loading
from lockstep.supervisor.plan import Plan, Result
from lockstep.supervisor.probes import Probe
from lockstep.supervisor.wishes import Wishes
from lockstep.wire import BadFrame, Message

GRACE_SECONDS = 5.0
"""How long processes may take to end after they were asked to."""
TICK_SECONDS = 0.25
"""How often the machine looks at the clock."""
TICKS_PER_PING = 4
"""Remote workers want to hear something from time to time."""
EXIT_SECONDS = 2.0
"""How long after the end of a connection the engine may take to say how the process ended, and the other way round."""


def run(plan: Plan, display: Display) -> Result:
    """Train until the job is over. When this returns, no process of it is left."""
    if aside.is_needed():
        return aside.run(lambda relay: Supervisor(plan, relay), display)
    return asyncio.run(Supervisor(plan, display).run())


class Supervisor:
    def __init__(self, plan: Plan, display: Display) -> None:
        self._plan = plan
        self._display = display = Sturdy(display)
        self._token = secrets.token_hex(16)
        self._machine = assembly.machine(plan, secrets.token_hex(16))
        self._engine = ENGINES[plan.job.engine].build(launching.site(plan, display.note))
        self._hosts = self._engine if isinstance(self._engine, Hosts) else None
        self._guests = None if self._hosts is None else self._take_guests(self._hosts)
        self._control = Control(self._token, self, self._guests)
        verified = None if self._machine.verification is None else plan.first_step
        keep = plan.recipe.checkpoints.keep
        self._archive = Archive(plan.directory, display, plan.first_step, keep, verified, plan.marks)
        self._over = asyncio.Event()
        self._is_open = False
        self._outcome: e.Outcome | None = None
        self._exits: set[int] = set()
        self._roles: dict[int, Role] = {}
        """Of all processes that were ever started."""
        self._places: dict[int, str] = {}
        """The hosts that joined, of the processes that run there."""
        self._loading = Loading(None if plan.checkpoint is None else plan.checkpoint.path, display.note)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wishes = Wishes(has_launcher=not self._machine.is_elastic)

    async def run(self) -> Result:
        plan = self._plan
        self._display.start(launching.title(plan), plan.first_step, plan.last_step)
        archive = self._archive.opened(plan.recipe, plan.job, plan.num_steps)
        files = contextlib.nullcontext() if plan.evaluate_only else archive
        with aside.heard(self.on_signal):
            async with files:
                await self._work()
        assert self._outcome is not None
        about = self._outcome.worker
        self._machine.losses.dropped_leaves = self._archive.dropped_leaves
        self._machine.losses.broken_images = len(self._archive.broken)
        return Result(
            outcome=self._outcome,
            evaluation=self._archive.evaluation,
            losses=self._machine.losses,
            is_mixed=self._archive.is_mixed,
            log=None if about is None else self._log(about),
        )

    async def _work(self) -> None:
        """From the first process to the end of the last one."""
        plan = self._plan
        try:
            if not await self._open():
                return
            await self._listen()
            if not plan.evaluate_only:
                self._archive.announce(self._control.address, self._token)
            self._do(self._machine.start())
            self._spawn(self._checkpoint_timer())
            self._spawn(self._ticker())
            await self._over.wait()
        finally:
            failed = self._outcome is None or self._outcome.state != "finished"
            self._control.send_all({"type": "shutdown", "failed": failed})
            if self._guests is not None:
                self._guests.end(self._outcome)
            for worker in self._machine.everyone:
                if not self._control.is_connected(worker):
                    self._engine.kill(worker)  # still importing; it would not hear
            await self._engine.close(GRACE_SECONDS)
            await self._control.close()
            for task in self._tasks:
                task.cancel()
            self._take_late()
            if not plan.evaluate_only:
                self._archive.withdraw()
            self._display.close()

    async def _open(self) -> bool:
        """Whether there is something to run on; not if a signal came first, when there is nothing to save."""
        opening, over = asyncio.ensure_future(self._engine.open()), asyncio.ensure_future(self._over.wait())
        await asyncio.wait({opening, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        self._is_open = opening.done()
        if not self._is_open:
            opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        return self._is_open

    async def _listen(self) -> None:
        """Where processes find the supervisor, and other hosts if they may."""
        if self._hosts is None:
            await self._control.start(self._engine.host)
            return
        place = self._hosts.place
        try:
            await self._control.start(place.bind, place.port, place.host)
        except OSError as error:  # somebody else was faster
            raise addresses.cannot_listen(str(self._plan.job.listen), error) from None
        file = None if sys.stderr.isatty() else self._plan.directory.path / ADDRESS_FILE
        for line in invitation(place, self._control.port, self._token, file):
            self._display.note(line)

    def _take_guests(self, hosts: Hosts) -> Guests:
        return Guests(hosts, self._machine, self._plan.directory, self._handle, self._display.note, time.monotonic)

    def _command(self, worker: int, slot: int) -> Command:
        plan, role = self._plan, self._roles[worker]
        environment = {
            "LOCKSTEP_CONTROL": self._control.address,
            "LOCKSTEP_TOKEN": self._token,
            "LOCKSTEP_ID": str(worker),
            **launching.environment(plan.recipe, plan.job.workers, role, slot, self._engine.assigns_devices),
        }
        return Command(worker, role, list(plan.programs[role]), environment, self._log(worker))

    def _log(self, worker: int) -> Path:
        return launching.log(self._plan, self._roles[worker], worker, self._places.get(worker, ""))

    async def welcome(self, worker: int) -> Message | None:
        """What a worker must know to set itself up; None for one that is not expected."""
        plan, known = self._plan, self._machine.everyone.get(worker)
        if known is None:
            return None
        role = self._roles[worker]
        needs_state = role == "worker" or (role == "server" and self._machine.servers_hold_state)
        listed = [] if plan.evaluate_only else self._archive.candidates()
        path = await self._loading.choose(worker, listed) if needs_state else None
        return {
            "type": "welcome",
            "config": to_plain(plan.recipe, plan.job),
            "num_steps": plan.num_steps,
            "last_step": plan.last_step,
            "run_directory": str(plan.directory.path.resolve()),
            "checkpoint": None if path is None else str(path.resolve()),
            "trains": not plan.evaluate_only,
            "patience": plan.job.patience,
            "slot": known.slot,
        }

    async def fetch(self, worker: int, name: str, writer: asyncio.StreamWriter) -> None:
        """Send a checkpoint to a worker that cannot see it."""
        path = self._loading.path(worker)
        if name in self._observed and self._roles[worker] == "evaluator":
            path = self._plan.directory.checkpoints / name
        await transfers.send(path if path is not None and path.name == name else None, writer)

    async def store(self, worker: int, reader: asyncio.StreamReader) -> Message:
        """Receive a checkpoint from a worker that cannot write it."""
        answer = await transfers.receive(self._plan.directory.checkpoints, worker, reader)
        if answer["type"] == "checkpointed" and worker not in self._machine.workers:  # expelled meanwhile
            self._archive.discard(answer["name"], answer["digest"])
        return answer

    # What happens

    def on_message(self, worker: int, message: Message) -> None:
        try:
            self._hear(worker, message)
        except messages.MALFORMED as error:
            raise BadFrame(f"a message of type {message['type']!r} is not as it must be: {error!r}") from None

    def _hear(self, worker: int, message: Message) -> None:
        kind = message["type"]
        if kind == "metrics":
            self._record({"kind": "train", **message["row"]})
            self._handle(e.Reached(worker, int(message["row"]["step"])))
        elif kind == "image":
            self._archive.image(str(message["tag"]), base64.b64decode(message["png"]), int(message["step"]))
        elif kind == "histograms":
            self._archive.histograms(messages.histograms(message), int(message["step"]))
        elif kind == "lost_updates":
            step, updates = int(message["step"]), int(message["updates"])
            self._record({"kind": "lost_updates", "server": worker, "step": step, "updates": updates})
            self._display.note(f"server {worker} begins at a checkpoint: {updates} updates of its part are lost")
        elif kind == "broken":
            self._on_broken(worker, str(message["image"]), str(message["reason"]))
        elif kind == "trace":
            self._archive.trace(worker, messages.spans(message))
        elif kind == "note":
            self._display.note(str(message["text"]))
        elif kind == "ready":
            self._on_ready(worker, message)
        elif kind == "finished":
            row = {"worker": worker, "step": message["step"], "seconds": message["spans"], **message["traffic"]}
            self._record({**row, "kind": "spans"})
            self._handle(e.Finished(worker, message["step"], message["digest"]))
        elif (event := messages.event(worker, message)) is not None:
            self._handle(event)

    def _on_broken(self, worker: int, image: str, reason: str) -> None:
        """An image that cannot be decoded, which several processes may come across; too many end the job."""
        if image in self._archive.broken:
            return
        self._record({"kind": "broken", "image": image, "reason": reason, "worker": worker})
        count, limit = len(self._archive.broken), self._plan.recipe.data.max_broken
        if count > limit:
            self._handle(e.Raised(worker, str(too_many(count, limit, image)), "", user=True))

    def _on_ready(self, worker: int, message: Message) -> None:
        self._loading.done(worker)
        if self._roles[worker] != "worker":
            self._handle(e.Ready(worker, message["address"], step=-1))
            return
        needed, free = 2 * message["state_bytes"], shutil.disk_usage(self._plan.directory.path).free
        if free < needed and not self._plan.evaluate_only and self._machine.generation is None:
            sentence = (
                f"the disk of {self._plan.directory.path} is full: {free >> 20} MiB are free, and checkpoints of this "
                f"model need {needed >> 20} MiB; free some space or choose another place with --run"
            )
            self._handle(e.Raised(worker, sentence, "before the first step", user=True))
            return
        probe = None if message["probe"] is None else Probe(message["probe"], message["environment"])
        self._handle(e.Ready(worker, message["address"], message["step"], probe))

    def on_command(self, command: Message) -> Message:
        """What `lockstep stop` and `lockstep resize` ask for; the answer to show."""
        if command.get("type") == "stop":
            self._stop(e.STOP_COMMAND)
            return {"type": "ok"}
        workers = command.get("workers")
        if command.get("type") != "resize" or not isinstance(workers, int):
            return {"type": "refused", "sentence": "the supervisor does not know this command"}
        if not 1 <= workers <= self._plan.recipe.leaves:
            leaves = self._plan.recipe.leaves
            return {
                "type": "refused",
                "sentence": f"{workers} workers cannot share {leaves} leaves: give 1 to {leaves}",
            }
        self._handle(e.Resize(workers, None if self._hosts is None else self._hosts.resize(workers)))
        return {"type": "ok"}

    def on_end(self, worker: int) -> None:
        if not self._over.is_set():
            self._spawn(self._await_exit(worker))

    async def _await_exit(self, worker: int) -> None:
        """The engine usually says in a moment how the process ended, which is a better cause than a lost connection."""
        await asyncio.sleep(EXIT_SECONDS)
        if worker not in self._exits:
            self._engine.kill(worker)
            self._handle(e.Gone(worker, "closed its connection", is_death=True))

    def _on_exit(self, worker: int, how: str, by_signal: bool) -> None:
        self._exits.add(worker)
        self._archive.clean_after(worker)
        self._handle(e.Gone(worker, how, is_death=by_signal))
        if by_signal:
            self._spawn(self._drop_later(worker))

    async def _drop_later(self, worker: int) -> None:
        """An engine can lose sight of a process that lives on, on a node that it takes for lost: it must know."""
        await asyncio.sleep(EXIT_SECONDS)
        self._control.drop(worker)

    def on_signal(self, number: signal.Signals) -> None:
        self._stop(number.name)

    def _stop(self, reason: str) -> None:
        """A first wish asks for a checkpoint and the end, a second one for the end."""
        if self._outcome is not None:
            self._display.note(f"{reason}: the run is over, and its last rows are on their way to the loggers")
            return
        if not self._is_open:
            self._do([e.End(e.Outcome("stopped", None, reason))])
            return
        if not self._wishes.is_new(reason, time.monotonic()):
            return
        is_first = self._machine.stopping is None
        self._handle(e.StopRequested(reason))
        if is_first and self._outcome is None:
            self._display.note(f"{reason}: stopping after a checkpoint (once more to stop at once)")

    async def _checkpoint_timer(self) -> None:
        seconds = self._plan.recipe.checkpoints.every_seconds
        while seconds > 0:
            await asyncio.sleep(seconds)
            self._handle(e.CheckpointTime())

    # What to do about it

    async def _ticker(self) -> None:
        for count in itertools.count():
            await asyncio.sleep(TICK_SECONDS)
            if self._guests is not None:  # first: a worker that is silent is lost with its host, if that is silent too
                self._guests.tick()
            self._handle(e.Tick())
            if count % TICKS_PER_PING == 0:
                self._control.send_all({"type": "ping"})
                if self._guests is not None:
                    self._guests.ping()

    async def _start(self, worker: int, slot: int) -> None:
        try:
            await self._engine.start(self._command(worker, slot), self._on_exit)
        except OSError as error:
            self._handle(e.Gone(worker, f"could not be started: {error}", is_death=False))
        else:
            if self._hosts is not None:
                self._places[worker] = self._hosts.host_of(worker)
            self._handle(e.Placed(worker, self._places.get(worker, "")))

    def _handle(self, event: e.Event) -> None:
        if self._outcome is not None:  # what follows from the end, such as workers that go, does not change it
            return
        try:
            self._do(self._machine.handle(event, time.monotonic()))
        except Exception:
            self._crash(traceback.format_exc())

    def _crash(self, text: str) -> None:
        """A mistake in the supervisor itself must end the job: nobody else would."""
        if self._outcome is None:
            self._outcome = e.Outcome("failed", None, f"the supervisor failed, which is a bug in Lockstep: {text}")
            self._over.set()
            with contextlib.suppress(Exception):  # it may be what has failed
                self._record_end(self._outcome)

    def _do(self, actions: list[e.Action]) -> None:
        for action in actions:
            match action:
                case e.Start():
                    self._roles[action.worker] = action.role
                    self._spawn(self._start(action.worker, action.slot))
                case e.Kill():
                    self._control.drop(action.worker)
                    self._engine.kill(action.worker)
                case e.Send():
                    self._control.send(action.worker, action.message)
                case e.Record():
                    self._record(action.row)
                case e.KeepCheckpoint():
                    in_use = self._loading.names(self._machine.everyone) | self._observed
                    self._archive.keep(action, {best["step"] for best in self._machine.bests}, in_use)
                case e.DiscardCheckpoint():
                    self._archive.discard(action.name, action.digest)
                case e.Trust():
                    self._archive.trust(action.step)
                case e.RollBack():
                    self._archive.roll_back(action.step, self._machine.scores.best)
                case e.Adopt():
                    self._archive.adopt(action.probe)
                case e.Warn():
                    self._display.note(f"warning: {action.text}")
                case e.Tell():
                    self._display.note(action.text)
                case e.End():
                    self._outcome = action.outcome
                    if not self._may_be_late:
                        self._record_end(action.outcome)
                    self._over.set()

    @property
    def _may_be_late(self) -> bool:
        """Whether a checkpoint may be complete only after the job was told to end without one."""
        ended = self._outcome
        is_at_once = ended is not None and ended.state == "stopped" and ended.digest is None
        return is_at_once and not self._plan.evaluate_only

    def _take_late(self) -> None:
        """No process is left, so what is on disk now is what there is."""
        if self._outcome is None or not self._may_be_late:
            return
        late = self._archive.take_late({best["step"] for best in self._machine.bests})
        self._outcome = dataclasses.replace(self._outcome, digest=late)
        self._record_end(self._outcome)

    def _record_end(self, ended: e.Outcome) -> None:
        mark = {} if strategies.bits(self._plan.job) != "none" else {"reproducible": False}
        self._record({"kind": "end", "state": ended.state, "digest": ended.digest, **mark})

    @property
    def _observed(self) -> set[str]:
        return set() if self._machine.observer is None else self._machine.observer.names

    def _record(self, row: dict[str, Any]) -> None:
        self._archive.record(row, self._machine.scores.best)
        if row["kind"] == "refused" and self._guests is not None:
            self._guests.on_refused(row["worker"], row["what"])

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash("".join(traceback.format_exception(error)))
