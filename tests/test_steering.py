"""`lockstep stop` and `lockstep resize` where nobody answers, or somebody else."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep import steering
from lockstep.errors import UserError
from lockstep.steering import command
from tests.test_rundirectory import make_run


@contextlib.contextmanager
def listener(says: bytes) -> Iterator[str]:
    """Somebody who says this to the first that connects, and nothing more; the address."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(says)
            while connection.recv(1 << 10):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def announce(address: str) -> None:
    Path("runs/run/supervisor.json").write_text(json.dumps({"version": 1, "address": address, "token": "secret"}))


@pytest.mark.parametrize("says", [b"SSH-2.0-OpenSSH_9.9\r\n", b"\0\0\0\2[]"])
def test_a_port_that_belongs_to_somebody_else_now_is_no_running_job(workspace: Path, says: bytes) -> None:
    make_run("runs/run")
    with listener(says) as address:
        announce(address)
        with pytest.raises(UserError, match="run is not running: continue it with `lockstep resume run`"):
            command("run", {"type": "stop"})


def test_a_supervisor_that_is_there_and_does_not_answer_is_not_called_gone(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused; or it has not announced itself yet."""
    monkeypatch.setattr(steering, "ANSWER_SECONDS", 0.2)
    directory = make_run("runs/run")
    with directory.locked():
        with pytest.raises(UserError, match="run is running, but its supervisor does not answer"):
            command("run", {"type": "stop"})
        with listener(b"") as address:
            announce(address)
            with pytest.raises(UserError, match="run is running, but its supervisor does not answer"):
                command("run", {"type": "stop"})
    Path("runs/run/supervisor.json").unlink()
    with pytest.raises(UserError, match="is not running"):
        command("run", {"type": "stop"})


@pytest.mark.usefixtures("workspace")
def test_a_name_is_quoted_in_what_can_be_pasted() -> None:
    make_run("runs/my second")
    with pytest.raises(UserError, match="continue it with `lockstep resume 'my second'`"):
        command("my second", {"type": "stop"})


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("command_", ["stop", "resize"])
def test_a_run_that_has_finished_is_over(command_: str) -> None:
    rows = [{"kind": "start", "step": 0, "time": 1.0}, {"kind": "end", "step": 4, "state": "finished", "time": 2.0}]
    make_run("runs/run").metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=f"run is not running, since it has finished: there is nothing to {command_}$"):
        command("run", {"type": command_})
