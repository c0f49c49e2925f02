"""Hosts that join: who may, what their agents say, and what becomes of the job when they come and go.

Their processes are the engine's (`lockstep.engines.hosts`), the decisions are `machine`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep import __version__, addresses, wire
from lockstep.addresses import Place
from lockstep.engines.hosts import Hosts, Send, clean_name
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor import events as e
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.messages import MALFORMED
from lockstep.supervisor.watch import Watch
from lockstep.wire import BadFrame, Message

MAX_SLOTS = 1024
EARLIER_SECONDS = 2.0
"""A host is lost so much sooner than its workers would be expelled: so they go with it, and none is sent there anew."""


class Guests:
    """The agents' connections, by number of host."""

    def __init__(
        self,
        hosts: Hosts,
        machine: Machine,
        run: RunDirectory,
        handle: Callable[[e.Event], None],
        note: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self._hosts = hosts
        self._machine = machine
        self._run = run.name
        self._logs = str((run.path / "logs").resolve())
        self._handle = handle
        self._note = note
        self._now = now
        patience = machine.watch.patience
        self._watch = Watch(patience - min(EARLIER_SECONDS, patience / 2))
        self._is_over = False

    def on_join(self, hello: Message, peer: str, send: Send) -> int | None:
        """An agent that knows the token wants to take part: its number, or None if it was told why not."""
        if (problem := "the run is over" if self._is_over else refusal(hello)) is not None:
            send({"type": "refused", "sentence": problem})
            self._note(f"a host at {peer} may not join: {problem}")
            return None
        slots = int(hello["agent"]["slots"])
        number = self._hosts.add(clean_name(hello["agent"]["host"]), slots, send)
        name = self._hosts.name(number)
        self._heard(number)
        free = max(0, self._machine.num_leaves - self._machine.num_workers)
        send({"type": "welcome", "run": self._run, "name": name, "used": min(slots, free), "logs": self._logs})
        self._note(f"{name} ({peer}) has joined {describe_offer(slots, free)}")
        self._handle(e.Joined(name, slots))
        return number

    def on_message(self, number: int, message: Message) -> None:
        if number not in self._hosts.numbers:
            raise BadFrame("this host is no longer a part of the job")
        try:
            self._hear(number, message)
        except MALFORMED as error:
            raise BadFrame(f"a message of type {message['type']!r} is not as it must be: {error!r}") from None

    def _hear(self, number: int, message: Message) -> None:
        self._heard(number)
        match message["type"]:
            case "log":
                self._hosts.write_log(number, int(message["id"]), str(message["text"]))
            case "exit":
                self._hosts.ended(number, int(message["id"]), int(message["status"]))
            case "leave":
                self._go(number, is_loss=False)

    def on_end(self, number: int) -> None:
        """A connection has ended; without a word before, that is a loss."""
        if number not in self._hosts.numbers:
            return
        if self._is_over:
            self._hosts.remove(number)
        else:
            self._go(number, is_loss=True)

    def tick(self) -> None:
        """Hosts that are silent for long are lost, as when the way to them is cut."""
        if self._is_over:
            return
        for number in self._watch.stuck(self._hosts.numbers, self._now()):
            self._hosts.send(number, {"type": "expelled"})
            self._go(number, is_loss=True)

    def ping(self) -> None:
        self._hosts.send_all({"type": "ping"})

    def on_refused(self, worker: int, why: str) -> None:
        """A host all of whose workers were refused is of no use: it is told, and dismissed."""
        if (number := self._hosts.take_back(worker)) is not None:
            self._hosts.send(number, {"type": "refused", "sentence": f"{self._run} refused this host, because {why}"})
            self._watch.forget(number)
            self._hosts.remove(number)

    def end(self, outcome: e.Outcome | None) -> None:
        """Tell everyone how the run ended; agents see to the rest."""
        self._is_over = True
        how = outcome or e.Outcome("failed")
        self._hosts.send_all({"type": "end", "state": how.state, "digest": how.digest, "cause": how.cause})

    def _heard(self, number: int) -> None:
        self._watch.heard(number, (0, None, "agent"), None, self._now())

    def _go(self, number: int, is_loss: bool) -> None:
        self._watch.forget(number)
        name, workers = self._hosts.remove(number)
        self._note(f"{name} {'is lost' if is_loss else 'has left'}; {self._remaining(workers)}")
        self._handle(e.Left(name, workers, self._hosts.room, is_loss))

    def _remaining(self, gone: tuple[int, ...]) -> str:
        others = set(self._machine.workers) - set(gone)
        return "the others go on" if others else "nobody is left: training goes on when a host joins"


def invitation(place: Place, port: int, token: str, token_file: Path | None) -> list[str]:
    """What to do on other hosts. The token stands apart, and only on a terminal: elsewhere it is in a file that only
    the user may read, because standard error may be a log."""
    lines = ["other hosts take part with this command:", f"  lockstep join {addresses.shown(place.host, port)}"]
    if place.is_guess:
        lines.append("  (a guess from the routes of this host; if others know it by another address, they take that)")
    if place.is_loopback:
        lines.append(f"  ({place.host} is known to this host alone: give --listen an address that others reach)")
    where = token if token_file is None else f"in {token_file}"
    return [*lines, f"token: {where}; it is asked for there, or taken from LOCKSTEP_TOKEN"]


def refusal(hello: Message) -> str | None:
    """Why an agent may not take part, in a sentence for the one who started it; None if it may."""
    if hello.get("version") != wire.PROTOCOL_VERSION:
        theirs, ours = _short(hello.get("version")), wire.PROTOCOL_VERSION
        return f"it speaks version {theirs} of the protocol, and this run {ours}: install the same Lockstep on both"
    offer: Any = hello["agent"]
    version, slots = offer.get("lockstep"), offer.get("slots")
    if version != __version__:
        return f"it has Lockstep {_short(version)}, and this run {__version__}: install the same version on both"
    if not isinstance(slots, int) or not 1 <= slots <= MAX_SLOTS or not isinstance(offer.get("host"), str):
        return f"it must say its name, and offer 1 to {MAX_SLOTS} workers"
    return None


def _short(value: Any) -> str:
    """What a stranger said, as it may be shown."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.+-]{1,32}", value) else repr(value)[:32]


def describe_offer(slots: int, free: int) -> str:
    """What a host brings, and how much of it is used at once."""
    if free == 0:
        return "as a spare: every leaf has a worker already"
    offer = "1 worker" if slots == 1 else f"{slots} workers"
    return f"with {offer}" if slots <= free else f"with {offer}, {slots - free} of them spare"
