"""`lockstep join` next to a supervisor that is played by the test: what it starts, says, and survives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep import __version__, addresses, agent, wire
from lockstep.agent import Agent, Ending, describe
from lockstep.errors import JobError, UserError
from lockstep.wire import Message
from tests.conftest import RECIPE, REPOSITORY, digest_in, run

WORKER = """
import os, sys, time
shown = {name: os.environ.get(name) for name in ("LOCKSTEP_ID", "LOCKSTEP_CONTROL", "OMP_NUM_THREADS", "LD_DEBUG")}
print(shown, "wörld", flush=True)
time.sleep(float(os.environ.get("NAP", "0")))
sys.exit(7)
"""


class Supervisor:
    """Takes one connection after the other, and says what it is told to say."""

    def __init__(self, *, is_mute: bool = False) -> None:
        self.said: list[str] = []
        self.connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._is_mute = is_mute

    async def __aenter__(self) -> Supervisor:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hello = await wire.read_frame(reader)
        if self._is_mute:
            writer.close()
            return
        writer.write(wire.encode({"type": "welcome", "run": "demo-1", "name": "box", "used": 1, "logs": "/there/logs"}))
        await self.connected.put((reader, writer))

    def agent(self) -> asyncio.Task[Ending]:
        one = Agent("127.0.0.1", self.port, "s3cret", 1, self.said.append)
        return asyncio.create_task(one.run())


START: Message = {
    "type": "start",
    "id": 3,
    "slot": 0,
    "gpu": False,
    "variables": {"OMP_NUM_THREADS": "2", "LD_DEBUG": "all"},
}
END: Message = {"type": "end", "state": "finished", "digest": "abc", "cause": ""}


async def hear(reader: asyncio.StreamReader, kind: str) -> Message:
    while (message := await asyncio.wait_for(wire.read_frame(reader), 20))["type"] != kind:
        assert message["type"] in ("heartbeat", "log"), message
    return message


def play(scene: Callable[[Supervisor], Awaitable[None]], **options: Any) -> Supervisor:
    async def main() -> Supervisor:
        async with Supervisor(**options) as supervisor:
            await scene(supervisor)
        return supervisor

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    monkeypatch.setattr(agent, "PROGRAM", (sys.executable, str(path)))
    monkeypatch.setattr(agent, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(agent, "GRACE_SECONDS", 0.2)


def test_a_worker_is_started_logged_and_reported_and_the_end_is_passed_on() -> None:
    """F72: and it is said where the logs are. Only known variables are taken from the network, and no program."""

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        reader, writer = await supervisor.connected.get()
        writer.write(wire.encode({**START, "arguments": ["rm"]}))
        log = ""
        while not log.endswith("\n"):
            log += (await hear(reader, "log"))["text"]
        assert "'LOCKSTEP_ID': '3'" in log
        assert f"'LOCKSTEP_CONTROL': '127.0.0.1:{supervisor.port}'" in log
        assert "'OMP_NUM_THREADS': '2', 'LD_DEBUG': None} wörld" in log
        assert await hear(reader, "exit") == {"type": "exit", "id": 3, "status": 7}
        writer.write(wire.encode(END))
        assert await task == Ending("finished", "demo-1", "abc")

    supervisor = play(scene)
    assert supervisor.hello["agent"] == {"host": os.uname().nodename, "slots": 1, "lockstep": __version__}
    assert supervisor.said[0] == f"joined demo-1 at 127.0.0.1:{supervisor.port} as box, with 1 worker"
    assert supervisor.said[1] == "the logs of its workers are on 127.0.0.1, in /there/logs"


def test_a_worker_is_killed_when_told_also_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAP", "100")

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        reader, writer = await supervisor.connected.get()
        writer.write(wire.encode(START) + wire.encode({"type": "kill", "id": 3}))
        assert (await hear(reader, "exit"))["status"] == -signal.SIGKILL
        writer.write(wire.encode({**START, "id": 4}))
        await hear(reader, "log")
        writer.write(wire.encode({"type": "kill", "id": 4}))
        assert await hear(reader, "exit") == {"type": "exit", "id": 4, "status": -signal.SIGKILL}
        writer.write(wire.encode(END))
        await task

    play(scene)


def test_a_signal_leaves_the_run_and_no_worker_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAP", "100")

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        reader, writer = await supervisor.connected.get()
        writer.write(wire.encode(START))
        await hear(reader, "log")
        os.kill(os.getpid(), signal.SIGINT)
        await hear(reader, "leave")
        assert (await hear(reader, "exit"))["status"] == -signal.SIGKILL
        assert await task == Ending("left", "demo-1")

    play(scene)


def test_a_host_that_began_with_nohup_stays_at_a_logout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "HEARTBEAT_SECONDS", 0.05)

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        reader, writer = await supervisor.connected.get()
        await hear(reader, "heartbeat")
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(3):
            await hear(reader, "heartbeat")
        writer.write(wire.encode(END))
        assert await task == Ending("finished", "demo-1", "abc")

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        play(scene)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_lost_supervisor_is_looked_for_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAP", "100")

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        reader, writer = await supervisor.connected.get()
        writer.write(wire.encode(START))
        await hear(reader, "log")
        writer.close()
        reader, writer = await supervisor.connected.get()
        assert any("worker 3 was killed by SIGKILL" in line for line in supervisor.said)
        writer.write(wire.encode(END))
        assert (await task).state == "finished"

    play(scene)


@pytest.mark.parametrize("how", ["closed", "silent"])
def test_a_supervisor_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(agent, "RETRY_SECONDS", 0.3)
    monkeypatch.setattr(agent, "SILENCE_SECONDS", 0.3)

    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        _, writer = await supervisor.connected.get()
        supervisor._server.close()
        if how == "closed":
            writer.close()
        with pytest.raises(JobError, match="did not come back"):
            await asyncio.wait_for(task, 20)
        writer.close()

    play(scene)


def test_a_wrong_token_is_said_in_one_sentence() -> None:
    async def scene(supervisor: Supervisor) -> None:
        with pytest.raises(UserError, match="does not accept this token"):
            await supervisor.agent()

    play(scene, is_mute=True)


def test_a_refusal_is_passed_on_at_any_time() -> None:
    async def scene(supervisor: Supervisor) -> None:
        task = supervisor.agent()
        _, writer = await supervisor.connected.get()
        writer.write(wire.encode({"type": "refused", "sentence": "it has no data"}))
        with pytest.raises(UserError, match="it has no data"):
            await task

    play(scene)


def test_endings_in_words() -> None:
    assert describe(Ending("finished", "a", "abc")) == "a finished, digest abc"
    assert describe(Ending("stopped", "a", None, "SIGTERM")) == "a was stopped by SIGTERM"
    assert "goes on without this host" in describe(Ending("left", "a"))
    assert describe(Ending("failed", "a", None, "Traceback\nValueError: x")) == "a failed: ValueError: x"


def test_what_cannot_be_joined_ends_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there, no such host, no token, no port: exit code 2, and no traceback."""
    monkeypatch.setenv("LOCKSTEP_TOKEN", "x")
    for address, expected in (("127.0.0.1:9", "nobody listens at 127.0.0.1:9"), ("no-such-host.invalid:9", "nobody")):
        result = run("join", address)
        assert result.returncode == 2, result.stderr
        assert expected in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert "HOST:PORT" in run("join", "127.0.0.1").stderr
    assert "at least 1" in run("join", "127.0.0.1:9", "--workers", "0").stderr


def test_the_token_is_asked_for_at_a_terminal_and_not_shown() -> None:
    """Where no variable has it; no option takes it, because everybody could read it in the list of processes."""
    assert "unknown option '--token'" in run("join", "127.0.0.1:9", "--token", "x").stderr
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "lockstep", "join", "127.0.0.1:9"]
    variables = {name: value for name, value in os.environ.items() if name != "LOCKSTEP_TOKEN"}
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=variables, stdin=terminal, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stderr is not None
    said = b""
    while not said.endswith(b"token: "):
        read = os.read(process.stderr.fileno(), 1000)
        assert read, said
        said += read
    os.write(screen, b"hidden-token\n")
    said += process.communicate(timeout=60)[1]
    os.set_blocking(screen, False)
    with contextlib.suppress(BlockingIOError):
        said += os.read(screen, 1000)
    os.close(screen)
    os.close(terminal)
    assert process.returncode == 2
    assert b"nobody listens at 127.0.0.1:9" in said
    assert b"hidden" not in said


def test_what_cannot_be_listened_on_ends_with_one_sentence_and_without_a_run(workspace: Path) -> None:
    for options, expected in (
        (["--listen", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--listen", "127.0.0.1:many"], "no port that could be"),
        (["--workers", "0"], "at least 1"),
        (["--listen", "127.0.0.1", "--min-workers", "5"], "--min-workers takes 1 to 4"),
    ):
        result = run("train", *RECIPE, *options)
        assert result.returncode == 2, result.stderr
        assert expected in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not Path("runs").exists()


def test_a_local_run_that_listens_has_the_same_digest(workspace: Path, undisturbed: tuple[str, list[float]]) -> None:
    """By IPv6, where the machine has it."""
    try:
        addresses.listener("::1").close()
        host = "::1"
    except OSError:
        host = "127.0.0.1"
    result = run("train", *RECIPE, "--workers", "2", "--listen", host, "--strategy", "server")
    assert digest_in(result) == undisturbed[0]
    assert "known to this host alone" in result.stderr
