"""Whoever does not belong to a job does not disturb it: port scanners, other jobs, and members that were expelled."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep import injection, wire
from tests.conftest import ENDLESS, REPOSITORY, run, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step

psutil = pytest.importorskip("psutil")


def listening(supervisor: int) -> set[tuple[str, int]]:
    """Every address on which a process of the job listens."""
    processes = [psutil.Process(supervisor), *psutil.Process(supervisor).children()]
    connections = [one for process in processes for one in process.net_connections(kind="tcp")]
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == "LISTEN"}


def say(address: tuple[str, int], data: bytes) -> bytes:
    """Say something to whoever listens there, and take the answer if there is one at once."""
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(data)
        connection.settimeout(0.02)
        try:
            return connection.recv(1 << 16)
        except (TimeoutError, ConnectionError):
            return b""


def test_garbage_on_every_port_and_a_second_job_disturb_nobody(workspace: Path) -> None:
    """Two jobs at once, each with its own token; one shows the other's, and a scanner tries every port of the first."""
    first = start("train", *ENDLESS, "--workers", "2", "--strategy", "server", "--run", "first")
    second = start("train", *ENDLESS, "--workers", "2", "--run", "second", "--seed", "1")
    wait_for_step(first, "first", 5)
    wait_for_step(second, "second", 5)
    ports = listening(first.pid)
    assert len(ports) >= 4  # the supervisor's, the stores of the workers, and the server's
    assert {host for host, _ in ports} == {"127.0.0.1"}
    numbers = random.Random(0)
    garbage = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0" * 1000]
    garbage += [numbers.randbytes(numbers.randrange(1, 400)) for _ in range(16)]
    for port in ports:
        for data in garbage:
            say(port, data)
    mine, other = (json.loads(Path(f"runs/{name}/supervisor.json").read_text()) for name in ("first", "second"))
    host, _, port_number = mine["address"].rpartition(":")
    stale = {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": mine["token"], "id": 99, "pid": 1}
    foreign = {**stale, "token": other["token"], "id": 1}
    for greeting in (stale, foreign, {**foreign, "command": {"type": "stop"}}):
        assert say((host, int(port_number)), wire.encode(greeting)) == b""
    assert run("stop", "second").returncode == 0
    second.communicate(timeout=30)
    stop_and_compare(first, "first")
    assert not rows_of("first", "death")
    assert not rows_of("second", "death")


def start_on(engine: str, *arguments: str) -> subprocess.Popen[str]:
    """The command with an engine for tests."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.engines.{engine}", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_process_that_its_engine_takes_for_dead_ends(workspace: Path) -> None:
    """As on a node that a scheduler gave up while it was merely slow: the job has a replacement already."""
    process = start_on("blind", "train", *ENDLESS, "--workers", "2", "--engine", "blind", "--run", "run")
    wait_for_step(process, "run", 5)
    children = psutil.Process(process.pid).children()
    (worker,) = [child for child in children if child.environ().get("LOCKSTEP_ID") == "1"]
    Path("blind").touch()
    worker.wait(timeout=30)
    assert [(row["worker"], row["how"]) for row in rows_of("run", "death")] == [(1, "was lost from sight")]
    stop_and_compare(process, "run")


def test_an_expelled_worker_that_wakes_up_does_no_harm_and_ends(workspace: Path) -> None:
    """Nobody could kill it: it learns from its connection that it is out."""
    arguments = ["train", *ENDLESS, "--workers", "3", "--engine", "weak", "--patience", "4", "--run", "run"]
    with injection.rules("stop worker=1 step=5 phase=exchange"):
        process = start_on("weak", *arguments)
        wait_for_step(process, "run", 5)
        stopped = wait_for_stopped(process.pid)
        wait_for_step(process, "run", 10)
    assert [row["worker"] for row in rows_of("run", "death")] == [1]
    stopped.resume()
    stopped.wait(timeout=10)
    assert len(rows_of("run", "death")) == 1
    stop_and_compare(process, "run")


def wait_for_stopped(supervisor: int) -> Any:
    deadline = time.monotonic() + 30
    while True:
        for child in psutil.Process(supervisor).children():
            if child.status() == psutil.STATUS_STOPPED:
                return child
        assert time.monotonic() < deadline
        time.sleep(0.02)
