"""A host takes part in a run: `lockstep join`. It starts workers when the supervisor asks for them, sends their logs
and how they ended, and ends them when it is told to, when it leaves, or when the supervisor is lost.

The supervisor names no program: an agent starts workers, and nothing else. The other side is `supervisor.guests`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lockstep import __version__, addresses, device, wire
from lockstep.engines.local import describe_status, kill_session
from lockstep.errors import JobError, UserError
from lockstep.signals import listened_to
from lockstep.wire import BadFrame, Message

PROGRAM = (sys.executable, "-m", "lockstep.worker")
VARIABLES = frozenset(device.environment(1, "fp32"))
"""What the supervisor may set for a worker."""
CONNECT_SECONDS = 15.0
HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 60.0
"""The supervisor says something every second; after so long a silence it is lost."""
RETRY_SECONDS = 60.0
"""How long a lost supervisor is looked for."""
PAUSE_SECONDS = 1.0
GRACE_SECONDS = 5.0
"""How long workers may take to end by themselves."""
PIECE = 1 << 16
CLOSED = (asyncio.IncompleteReadError, OSError, BadFrame)
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Ending:
    """How it ended: "finished", "stopped" and "failed" are the run's, "left" is this host's."""

    state: str
    run: str
    digest: str | None = None
    cause: str = ""


class Refused(Exception):  # noqa: N818
    """The connection was closed without a word: that is what happens to whoever does not know the token."""


class Agent:
    def __init__(self, host: str, port: int, token: str, slots: int, say: Callable[[str], None]) -> None:
        self._host, self._port, self._token, self._slots = host, port, token, slots
        self._say = say
        self._run = ""
        self._writer: asyncio.StreamWriter | None = None
        self._children: dict[int, Process | None] = {}
        """By number of worker; None while it is being started."""
        self._unwanted: set[int] = set()
        """Killed before they were there."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()

    @property
    def address(self) -> str:
        return addresses.shown(self._host, self._port)

    async def run(self) -> Ending:
        """Take part until the run is over or this host leaves. UserError if it may not, JobError if the supervisor is
        lost."""
        try:
            reader: asyncio.StreamReader | None = await self._connect()
        except Refused:
            raise UserError(f"{self.address} does not accept this token: copy it once more from the run") from None
        except TimeoutError:
            hint = "look at the address, and whether a firewall stands between"
            raise UserError(f"nobody answers at {self.address} within {CONNECT_SECONDS:.0f} s: {hint}") from None
        except (OSError, UnicodeError) as error:
            hint = "look at the address, and whether the run is still there"
            raise UserError(f"nobody listens at {self.address} ({_reason(error)}): {hint}") from None
        with self._signals():
            while reader is not None:
                ending, grace = None, 0.0
                try:
                    ending = await self._serve(reader)
                    grace = GRACE_SECONDS if ending is not None else 0.0
                finally:
                    await self._end_children(grace)
                    self._close()
                if ending is not None:
                    return ending
                self._say(f"{self._run} is lost: trying to find it again for {RETRY_SECONDS:.0f} s")
                reader = await self._reconnect()
        if self._leaving.is_set():
            return Ending("left", self._run)
        raise JobError(f"the supervisor of {self._run} at {self.address} did not come back: this host gives up")

    async def _connect(self) -> asyncio.StreamReader:
        """The connection, after the handshake."""
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(self._host, self._port)
            self._writer = writer
            offer = {"host": socket.gethostname(), "slots": self._slots, "lockstep": __version__}
            hello = {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": self._token, "agent": offer}
            self._send(hello)
            try:
                answer = await wire.read_frame(reader)
            except (asyncio.IncompleteReadError, ConnectionError, BadFrame):
                raise Refused from None
        if answer["type"] != "welcome":
            self._close()
            raise UserError(f"{self.address}: {answer.get('sentence', 'something else listens there')}")
        self._run = str(answer.get("run"))
        self._say(f"joined {self._run} at {self.address} as {answer.get('name')}, {_places(self._slots, answer)}")
        self._say(f"the logs of its workers are on {self._host}, in {answer.get('logs')}")
        return reader

    async def _reconnect(self) -> asyncio.StreamReader | None:
        """Look for a supervisor that was lost; None if this host gives up, or leaves."""
        deadline = time.monotonic() + RETRY_SECONDS
        while time.monotonic() < deadline and not self._leaving.is_set():
            try:
                return await self._connect()
            except (OSError, Refused):
                self._close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), PAUSE_SECONDS)
        return None

    async def _serve(self, reader: asyncio.StreamReader) -> Ending | None:
        """Do what is asked for until the run ends or this host leaves; None if the supervisor is lost."""
        beating = asyncio.create_task(self._beat())
        listening = asyncio.create_task(self._listen(reader))
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait({listening, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                return listening.result()
            self._send({"type": "leave"})
            return Ending("left", self._run)
        finally:
            for task in (beating, listening, leaving):
                task.cancel()

    async def _listen(self, reader: asyncio.StreamReader) -> Ending | None:
        while True:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await wire.read_frame(reader)
                if (ending := self._handle(message)) is not None:
                    return ending
            except (*CLOSED, *MALFORMED) as error:
                if isinstance(error, UserError):
                    raise
                return None

    def _handle(self, message: Message) -> Ending | None:
        match message["type"]:
            case "start":
                id_, slot = int(message["id"]), int(message["slot"])
                environment = self._environment(id_, slot, bool(message["gpu"]), message["variables"])
                self._children[id_] = None
                task = asyncio.create_task(self._work(id_, environment))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "kill":
                self._kill(int(message["id"]))
            case "refused":
                raise UserError(str(message["sentence"]))
            case "expelled":
                raise BadFrame("the supervisor did not hear from this host")
            case "end":
                digest = message["digest"]
                return Ending(
                    str(message["state"]), self._run, None if digest is None else str(digest), str(message["cause"])
                )
        return None

    def _environment(self, id_: int, slot: int, gpu: bool, variables: dict[str, Any]) -> dict[str, str]:
        return {
            **os.environ,
            **{name: str(value) for name, value in variables.items() if name in VARIABLES},
            **(device.one_gpu(slot) if gpu and device.count_gpus() else {}),
            "LOCKSTEP_CONTROL": f"{self._host}:{self._port}",
            "LOCKSTEP_TOKEN": self._token,
            "LOCKSTEP_ID": str(id_),
            "LOCKSTEP_PARENT": str(os.getpid()),
        }

    async def _work(self, id_: int, environment: dict[str, str]) -> None:
        """One worker, from its start to its end."""
        try:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._send({"type": "log", "id": id_, "text": f"lockstep join: cannot start a worker: {error}\n"})
            self._finish(id_, 1)
            return
        self._children[id_] = process
        self._say(f"worker {id_} runs here")
        if id_ in self._unwanted:
            self._kill(id_)
        pump = asyncio.create_task(self._pump(id_, process.stdout))
        status = await process.wait()
        kill_session(process.pid)  # whatever it started goes with it, and the pipe is closed
        await pump
        self._say(f"worker {id_} {describe_status(status)}")
        self._finish(id_, status)

    async def _pump(self, id_: int, stream: asyncio.StreamReader | None) -> None:
        """What a worker writes, to the log beside the supervisor."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while stream is not None and (piece := await stream.read(PIECE)):
            self._send({"type": "log", "id": id_, "text": decoder.decode(piece)})
            if self._writer is not None:
                with contextlib.suppress(OSError):
                    await self._writer.drain()

    def _finish(self, id_: int, status: int) -> None:
        self._children.pop(id_, None)
        self._unwanted.discard(id_)
        self._send({"type": "exit", "id": id_, "status": status})

    def _kill(self, id_: int) -> None:
        if id_ not in self._children:
            return
        process = self._children[id_]
        if process is None:
            self._unwanted.add(id_)
        elif process.returncode is None:
            kill_session(process.pid)

    async def _end_children(self, grace_seconds: float) -> None:
        """Afterwards none is left, also if nobody takes their last words."""
        if self._tasks and grace_seconds:
            await asyncio.wait(list(self._tasks), timeout=grace_seconds)
        for id_ in list(self._children):
            self._kill(id_)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=PAUSE_SECONDS)
        if self._tasks and self._writer is not None:
            self._writer.transport.abort()
            await asyncio.wait(list(self._tasks))

    async def _beat(self) -> None:
        while True:
            self._send({"type": "heartbeat"})
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and the like: leave, and let the others go on."""
        loop = asyncio.get_running_loop()
        numbers = listened_to((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        for number in numbers:
            loop.add_signal_handler(number, self._leaving.set)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _places(slots: int, welcome: Message) -> str:
    used = welcome.get("used")
    if used == 0:
        return "a spare: every leaf has a worker already"
    return f"with {slots} {'worker' if slots == 1 else 'workers'}" + (f", {used} in use" if used != slots else "")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def describe(ending: Ending) -> str:
    """The last line."""
    match ending.state:
        case "finished":
            return f"{ending.run} finished, digest {ending.digest}"
        case "stopped":
            return f"{ending.run} was stopped by {ending.cause or 'its user'}"
        case "left":
            return f"left {ending.run}, which goes on without this host"
        case _:
            first = (ending.cause.strip().splitlines() or ["its supervisor ended"])[-1]
            return f"{ending.run} failed: {first}"
