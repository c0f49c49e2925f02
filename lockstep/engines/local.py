"""Processes on this machine, each in a session of its own, ended with all their children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process

from lockstep.engines import Command, OnExit, Site

LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


class Local:
    host = "127.0.0.1"
    assigns_devices = False

    def __init__(self, site: Site) -> None:
        self._processes: dict[int, Process] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._unwanted: set[int] = set()
        """Killed before they were there."""

    async def open(self) -> None:
        """There is nothing to get hold of."""

    async def start(self, command: Command, on_exit: OnExit) -> None:
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE, **command.environment}
        environment["LOCKSTEP_PARENT"] = str(os.getpid())
        command.log.parent.mkdir(parents=True, exist_ok=True)
        with command.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command.arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[command.id] = process
        if command.id in self._unwanted:
            self.kill(command.id)
        watcher = asyncio.create_task(self._watch(command.id, process, on_exit))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, id_: int, process: Process, on_exit: OnExit) -> None:
        status = await process.wait()
        kill_session(process.pid)
        on_exit(id_, describe_status(status), status < 0)

    def kill(self, id_: int) -> None:
        process = self._processes.get(id_)
        if process is None:
            self._unwanted.add(id_)
        elif process.returncode is None:
            kill_session(process.pid)

    async def close(self, grace_seconds: float) -> None:
        if self._watchers:
            await asyncio.wait(list(self._watchers), timeout=grace_seconds)
        for id_ in self._processes:
            self.kill(id_)
        if self._watchers:
            await asyncio.wait(list(self._watchers))


def kill_session(pid: int) -> None:
    """The process was started as the leader of its own session and group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_status(status: int) -> str:
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        return f"was killed by {name}"
    return f"ended with exit code {status}"
