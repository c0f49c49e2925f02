"""Hosts of one's own: they join a run, leave it and die, and the digest is that of an undisturbed run.

Every host is a network namespace: that needs root and iproute2.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep import injection
from tests.conftest import ENDLESS, RECIPE, REPOSITORY, STARTED, compare_stopped
from tests.engines.netns import Network, ip
from tests.test_resume import rows_of, wait_for_step

psutil = pytest.importorskip("psutil")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not all(map(shutil.which, ("ip", "bridge", "unshare"))), reason="needs Debian's iproute2"),
    pytest.mark.timeout(300),
]

LISTEN = "10.77.0.1:4321"


def inside(
    network: Network, host: str, *arguments: str, token: str | None = None, without: Path | None = None
) -> subprocess.Popen[str]:
    """The real command on a host; `without` is a directory that the host does not have."""
    command = ["ip", "netns", "exec", f"{network.prefix}{host}"]
    if without is not None:
        command += ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && cd / && exec "$@"', str(without)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **({"LOCKSTEP_TOKEN": token} if token else {})}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process: subprocess.Popen[str] = subprocess.Popen(
        [*command, sys.executable, "-m", "lockstep", *arguments],
        env=environment,
        **pipes,  # type: ignore[call-overload]
    )
    STARTED.append(process)
    return process


def train(network: Network, *arguments: str) -> subprocess.Popen[str]:
    """On the first host, whose own worker takes its time, so that few steps have to be computed again to compare."""
    with injection.rules("slow worker=0 factor=10"):
        return inside(network, "s", "train", *arguments, "--run", "run")


def wait_until(condition: Callable[[], bool], *processes: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def address(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Where the supervisor of a run listens, and its token."""
    path = Path("runs/run/supervisor.json")
    wait_until(path.exists, process)
    document = json.loads(path.read_text())
    return document["address"], document["token"]


def wait_for_workers(process: subprocess.Popen[str], count: int, generations: int = 0) -> int:
    """Until the newest generation has so many and has trained; how many generations there have been."""

    def is_there() -> bool:
        rows = rows_of("run", "generation")
        return len(rows) > generations and rows[-1]["workers"] == count

    wait_until(is_there, process)
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 3)
    return len(rows_of("run", "generation"))


def stop_and_compare(network: Network, process: subprocess.Popen[str]) -> str:
    stopped = inside(network, "s", "stop", "run")
    _, err = stopped.communicate(timeout=30)
    assert stopped.returncode == 0, err
    return compare_stopped(process, "run")


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def worker_of(agent: subprocess.Popen[str]) -> int:
    (child,) = psutil.Process(agent.pid).children()
    return int(child.pid)


def test_hosts_join_in_the_middle_lose_a_worker_and_leave(workspace: Path, network: Network) -> None:
    """A worker that is killed is replaced on its host; a host that leaves is missed by nobody; one digest."""
    process = train(network, *ENDLESS, "--workers", "1", "--listen", LISTEN)
    where, token = address(process)
    assert where == LISTEN
    wait_for_step(process, "run", 5)
    first, second = (inside(network, host, "join", LISTEN, token=token) for host in ("w0", "w1"))
    so_far = wait_for_workers(process, 3)
    check_secrecy(token, process, first, second)

    os.kill(worker_of(first), signal.SIGKILL)
    so_far = wait_for_workers(process, 2, so_far)
    so_far = wait_for_workers(process, 3, so_far)
    assert [row["how"] for row in rows_of("run", "death")] == ["was killed by SIGKILL"]
    assert worker_of(first) > 0

    second.send_signal(signal.SIGINT)
    wait_for_workers(process, 2, so_far)
    code, out, err = end_of(second)
    assert code == 0, err
    assert "left run, which goes on without this host" in out

    shown = stop_and_compare(network, process)
    code, out, _ = end_of(first)
    assert (code, out) == (0, "run was stopped by `lockstep stop`\n")
    assert f"  lockstep join {LISTEN}\n" in shown
    assert token not in shown
    assert "has left; the others go on" in shown
    assert len(rows_of("run", "death")) == 1
    assert [row["what"] for row in rows_of("run", "host")] == ["joined", "joined", "left"]


def check_secrecy(token: str, *processes: subprocess.Popen[str]) -> None:
    """The token is in the one file that only the user may read, and in no process list."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert token.encode() not in path.read_bytes(), path
        except OSError:  # it has ended meanwhile
            continue
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    assert any("-" in path.stem.removeprefix("worker-") for path in files if path.suffix == ".log"), files
    assert [path.name for path in files if token.encode() in path.read_bytes()] == ["supervisor.json"]
    assert Path("runs/run/supervisor.json").stat().st_mode & 0o077 == 0


def test_a_host_that_is_killed_and_one_whose_link_is_cut(workspace: Path, network: Network) -> None:
    """Each counts as a death, and none is replaced elsewhere; when the link is back, so is the host; one digest."""
    process = train(network, *ENDLESS, "--workers", "1", "--listen", LISTEN, "--patience", "4")
    _, token = address(process)
    killed, cut = (inside(network, host, "join", LISTEN, token=token) for host in ("w0", "w1"))
    so_far = wait_for_workers(process, 3)
    worker = worker_of(killed)
    killed.kill()
    so_far = wait_for_workers(process, 2, so_far)
    wait_until(lambda: not psutil.pid_exists(worker), process)

    network.cut("w1")
    so_far = wait_for_workers(process, 1, so_far)
    ip("-n", network.hub, "link", "set", "w1", "up")
    wait_for_workers(process, 2, so_far)
    shown = stop_and_compare(network, process)
    assert shown.count("is lost; the others go on") == 2
    assert [row["what"] for row in rows_of("run", "host")] == ["joined", "joined", "lost", "lost", "joined"]
    assert all("was lost with its host" in row["how"] for row in rows_of("run", "death")), shown
    assert len(rows_of("run", "death")) == 2
    assert not rows_of("run", "refused")
    code, out, _ = end_of(cut)
    assert (code, out) == (0, "run was stopped by `lockstep stop`\n")


def test_a_run_without_workers_of_its_own_on_every_address(
    workspace: Path, network: Network, undisturbed: tuple[str, list[float]]
) -> None:
    """It begins with the first host that joins, which does not see the run directory; the host hears the digest."""
    ip("-n", f"{network.prefix}s", "route", "add", "default", "dev", "eth0")
    process = train(network, *RECIPE, "--workers", "0", "--listen", "0.0.0.0")
    where, token = address(process)
    assert where.startswith("10.77.0.1:")
    host = inside(network, "w0", "join", where, "--workers", "2", token=token, without=workspace)
    code, out, err = end_of(host)
    assert code == 0, err
    assert out == f"run finished, digest {undisturbed[0]}\n"
    _, out, err = end_of(process)
    assert out.splitlines()[-1] == f"digest {undisturbed[0]}"
    assert "a guess from the routes" in err
    assert "training begins when a host joins" in err
    assert [row["loss"] for row in rows_of("run", "train")] == undisturbed[1]


OWN_MODEL = """
import torch
def own(num_classes, image_shape):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, num_classes))
"""


def test_a_host_without_the_users_code_is_refused_by_name_and_a_wrong_token_is_not_accepted(
    workspace: Path, network: Network
) -> None:
    """Nobody else is disturbed."""
    (workspace / "own.py").write_text(OWN_MODEL)
    model = ["--model", "own.py:own"]
    process = train(network, *ENDLESS, *model, "--workers", "1", "--listen", LISTEN)
    _, token = address(process)
    code, _, err = end_of(inside(network, "w1", "join", LISTEN, token="wrong"))
    assert code == 2, err
    assert "does not accept this token" in err
    code, _, err = end_of(inside(network, "w1", "join", LISTEN))
    assert code == 2, err
    assert "LOCKSTEP_TOKEN" in err
    code, _, err = end_of(inside(network, "w0", "join", LISTEN, token=token, without=workspace))
    assert code == 2, err
    assert "run refused this host, because it cannot set itself up: there is no file" in err.splitlines()[-1]
    wait_for_step(process, "run", 3)
    inside(network, "s", "stop", "run").communicate(timeout=30)
    shown = compare_stopped(process, "run", *model)
    assert "is refused, because it cannot set itself up: there is no file" in shown
    assert shlex.quote(str(workspace / "own.py")) in shown
