"""Hosts that join: which ones may, what they are asked to do, and what their agents may say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lockstep import __version__, wire
from lockstep.addresses import Place
from lockstep.engines import Command, Role, Site
from lockstep.engines.hosts import Hosts, clean_name
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor import events as e
from lockstep.supervisor.guests import Guests, describe_offer, invitation, refusal
from lockstep.wire import BadFrame, Message
from tests.supervisor.test_machine import build


def hello(**changes: Any) -> Message:
    offer = {"host": "box", "slots": 2, "lockstep": __version__, **changes}
    return {"type": "hello", "version": wire.PROTOCOL_VERSION, "agent": offer}


class Job:
    """A job with a worker here, whose engine starts nothing, and a clock that is set by hand."""

    def __init__(self, tmp_path: Path, workers: int = 1) -> None:
        self.path = tmp_path
        self.machine = build(workers, leaves=4)
        self.hosts = Hosts(Site(num_workers=workers, listen="127.0.0.1"))
        self.hosts._here.update(range(workers))
        self.events: list[e.Event] = []
        self.notes: list[str] = []
        self.now = 0.0
        self.exits: list[tuple[int, str, bool]] = []
        self.guests = Guests(
            self.hosts,
            self.machine,
            RunDirectory(Path("runs/demo-1")),
            self.events.append,
            self.notes.append,
            lambda: self.now,
        )

    def join(self, **changes: Any) -> tuple[int | None, list[Message]]:
        told: list[Message] = []
        return self.guests.on_join(hello(**changes), "10.0.0.2", told.append), told

    def start(self, id_: int, role: Role = "worker") -> None:
        environment = {"LOCKSTEP_TOKEN": "secret", "OMP_NUM_THREADS": "1"}
        command = Command(id_, role, ["program"], environment, self.path / f"worker-{id_}.log")
        asyncio.run(self.hosts.start(command, lambda *how: self.exits.append(how)))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("greeting", "expected"),
    [
        (hello(), None),
        ({**hello(), "version": 99}, "version 99 of the protocol"),
        (hello(lockstep="0.0.1"), "it has Lockstep 0.0.1"),
        (hello(lockstep="\x1b[2J" * 99), "install the same version"),
        (hello(slots=0), "1 to 1024 workers"),
        (hello(slots="2"), "1 to 1024 workers"),
        (hello(host=None), "its name"),
    ],
)
def test_who_may_join(greeting: Message, expected: str | None) -> None:
    found = refusal(greeting)
    assert found is None if expected is None else expected in str(found)
    assert "\x1b" not in str(found)


def test_a_refused_host_is_told_why_and_so_is_the_user(job: Job) -> None:
    number, told = job.join(lockstep="0.0.1")
    assert number is None
    assert told[0]["type"] == "refused"
    assert "may not join" in job.notes[0]
    assert (job.events, job.hosts.room) == ([], 1)


def test_a_host_is_given_workers_that_do_not_fit_here_and_nothing_secret(job: Job) -> None:
    number, told = job.join()
    assert job.events == [e.Joined("box", 2)]
    assert told[0] == {
        "type": "welcome",
        "run": "demo-1",
        "name": "box",
        "used": 2,
        "logs": str(Path("runs/demo-1/logs").resolve()),
    }
    assert job.notes == ["box (10.0.0.2) has joined with 2 workers"]
    job.start(1)
    job.start(2)
    assert [one["slot"] for one in told[1:]] == [0, 1]
    assert told[1] == {"type": "start", "id": 1, "slot": 0, "gpu": False, "variables": {"OMP_NUM_THREADS": "1"}}
    assert job.hosts.host_of(1) == "box"
    assert number == 0


def test_a_resize_says_how_many_run_here(job: Job) -> None:
    """As many as before, no more than there are to be, and what fits nowhere else."""
    job.join(slots=2)
    assert [job.hosts.resize(workers) for workers in (3, 4, 2, 1)] == [1, 2, 2, 1]


def test_after_a_resize_to_fewer_the_workers_of_a_host_that_joins_run_there(tmp_path: Path) -> None:
    job = Job(tmp_path, workers=4)
    assert job.hosts.resize(1) == 1
    for id_ in (1, 2, 3):
        job.hosts.kill(id_)
    _, told = job.join(slots=2)
    job.start(4)
    job.start(5)
    assert [one["id"] for one in told if one["type"] == "start"] == [4, 5]


def test_a_place_is_free_again_as_soon_as_its_worker_is_killed(job: Job) -> None:
    number, told = job.join(slots=1)
    assert number is not None
    job.start(1)
    job.hosts.kill(1)
    job.start(2)
    assert [(one["type"], one.get("id")) for one in told[1:]] == [("start", 1), ("kill", 1), ("start", 2)]
    job.guests.on_message(number, {"type": "exit", "id": 1, "status": -9})
    assert job.exits == [(1, "was killed by SIGKILL", True)]
    job.guests.on_end(number)
    assert job.events[-1] == e.Left("box", (2,), 1, is_loss=True)


def test_one_that_was_killed_before_it_was_placed_is_not_started(job: Job) -> None:
    _, told = job.join(slots=1)
    job.hosts.kill(1)
    job.start(1)
    assert [one["type"] for one in told] == ["welcome"]


def test_logs_and_ends_of_own_processes_only(job: Job) -> None:
    first, _ = job.join(slots=1)
    second, _ = job.join(slots=1)
    assert first is not None
    assert second is not None
    assert job.events[-1] == e.Joined("box-2", 1)  # the same name twice
    job.start(1)
    job.start(2)
    assert (job.path / "worker-1-box.log").read_text() == ""
    job.guests.on_message(first, {"type": "log", "id": 1, "text": "hallo "})
    job.guests.on_message(first, {"type": "log", "id": 1, "text": "wörld\n"})
    job.guests.on_message(second, {"type": "log", "id": 1, "text": "not mine"})
    job.guests.on_message(second, {"type": "exit", "id": 1, "status": 0})
    assert (job.path / "worker-1-box.log").read_text() == "hallo wörld\n"
    assert job.exits == []
    job.guests.on_message(second, {"type": "exit", "id": 2, "status": 3})
    assert job.exits == [(2, "ended with exit code 3", True)]  # it has lost the supervisor, which is nobody's mistake


@pytest.mark.parametrize(
    "message",
    [
        {"type": "exit", "id": 1},
        {"type": "exit", "id": None, "status": 0},
        {"type": "log", "id": [], "text": ""},
        {"type": "exit", "id": 1e400, "status": 0},
    ],
)
def test_malformed_messages_are_dropped_with_their_sender(job: Job, message: Message) -> None:
    number, _ = job.join()
    assert number is not None
    with pytest.raises(BadFrame):
        job.guests.on_message(number, message)


def test_leaving_is_no_loss_and_nothing_is_heard_afterwards(job: Job) -> None:
    number, _ = job.join(slots=1)
    assert number is not None
    job.start(1)
    job.guests.on_message(number, {"type": "leave"})
    assert job.events[-1] == e.Left("box", (1,), 1, is_loss=False)
    with pytest.raises(BadFrame):
        job.guests.on_message(number, {"type": "exit", "id": 1, "status": 0})
    job.guests.on_end(number)
    assert len(job.events) == 2
    assert job.exits == []


def test_a_silent_host_is_lost_after_the_patience_but_not_for_a_pause_of_the_supervisor(job: Job) -> None:
    number, told = job.join(slots=1)
    assert number is not None
    job.guests.tick()
    job.now = 100.0  # the supervisor stood still
    job.guests.tick()
    assert len(job.events) == 1
    for _ in range(12):
        job.now += 1
        job.guests.tick()
    assert job.events[-1] == e.Left("box", (), 1, is_loss=True)
    assert told[-1] == {"type": "expelled"}


def test_a_host_whose_workers_were_all_refused_is_dismissed(job: Job) -> None:
    number, told = job.join(slots=2)
    assert number is not None
    job.start(1)
    job.start(2)
    job.guests.on_refused(1, "it has no data")
    assert told[-1]["type"] == "start"
    assert job.hosts.room == 2
    job.guests.on_refused(2, "it has no data")
    assert told[-1] == {"type": "refused", "sentence": "demo-1 refused this host, because it has no data"}
    assert job.hosts.room == 1
    job.guests.on_end(number)
    assert job.events == [e.Joined("box", 2)]


def test_the_end_is_told_to_everyone_and_nobody_is_lost_afterwards(job: Job) -> None:
    number, told = job.join()
    assert number is not None
    job.guests.end(e.Outcome("finished", "abc"))
    assert told[-1] == {"type": "end", "state": "finished", "digest": "abc", "cause": ""}
    job.guests.on_end(number)
    assert job.events == [e.Joined("box", 2)]


def test_names_of_hosts_become_parts_of_files() -> None:
    assert clean_name("../../etc/passwd") == "etc-passwd"
    assert clean_name("node-7.example.org") == "node-7.example.org"
    assert clean_name("//") == "host"
    assert len(clean_name("x" * 1000)) == 64


def test_offers_in_words() -> None:
    assert describe_offer(1, 3) == "with 1 worker"
    assert describe_offer(4, 3) == "with 4 workers, 1 of them spare"
    assert describe_offer(2, 0).startswith("as a spare")


def test_the_token_stands_apart_from_the_command_and_is_shown_on_a_terminal_only() -> None:
    place = Place("0.0.0.0", 0, "10.0.0.1", is_guess=True)
    on_terminal = invitation(place, 4000, "s3cret", None)
    assert on_terminal[1] == "  lockstep join 10.0.0.1:4000"
    assert "guess" in on_terminal[2]
    assert on_terminal[-1].startswith("token: s3cret;")
    elsewhere = invitation(Place("10.0.0.1", 0, "10.0.0.1"), 4000, "s3cret", Path("runs/demo-1/supervisor.json"))
    assert "s3cret" not in "".join(elsewhere)
    assert "runs/demo-1/supervisor.json" in elsewhere[-1]
