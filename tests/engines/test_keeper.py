"""What an actor does with the one process that it holds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lockstep.engines import keeper
from lockstep.engines.keeper import Keeper, Order


def order(code: str, tmp_path: Path, **environment: str) -> Order:
    return Order(["/the/driver/python", "-c", code], environment, "/the/driver/python", str(tmp_path), [])


async def finish(keeper: Keeper) -> tuple[bytes, int]:
    """All that the process wrote, and its status."""
    position, output, status = 0, b"", None
    while status is None:
        first, chunk, status = await keeper.read(position)
        output, position = output[:first] + chunk, first + len(chunk)
    return output, status


async def run(order: Order) -> tuple[bytes, int]:
    one = Keeper()
    await one.start(order)
    return await finish(one)


def test_the_nodes_own_interpreter_runs_the_command(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.executable, os.getcwd(), os.environ['MINE']); sys.exit(7)"
    output, status = asyncio.run(run(order(code, tmp_path, MINE="yes")))
    assert output.decode() == f"{sys.executable} {tmp_path} yes\n"
    assert status == 7


def test_everything_is_handed_out_even_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "CHUNK_BYTES", 1000)

    async def work() -> None:
        one = Keeper()
        await one.start(order("print('x' * 5000); import os; os.write(2, b'end')", tmp_path))
        first = await one.read(0)
        assert await one.read(0) == first
        output, status = await finish(one)
        assert output == b"x" * 5000 + b"\nend"
        assert status == 0

    asyncio.run(work())


def test_no_process_waits_for_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody fetches is lost at last, the oldest first."""
    monkeypatch.setattr(keeper, "MAX_KEPT_BYTES", 1000)

    async def work() -> None:
        one = Keeper()
        await one.start(order("print('x' * 500_000 + 'end', end='')", tmp_path))
        assert one._watcher is not None
        await one._watcher
        first, output, _ = await one.read(0)
        assert first == 500_003 - 1000
        assert output.endswith(b"xend")

    asyncio.run(work())


def test_a_killed_process_takes_its_children_along(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"

    async def work() -> tuple[int, int]:
        one = Keeper()
        await one.start(order(code, tmp_path))
        _, child, _ = await one.read(0)
        await one.kill()
        return int(child), (await finish(one))[1]

    child, status = asyncio.run(work())
    assert status == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


def test_a_command_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(run(Order(["/no/such/program"], {}, "python", str(tmp_path), [])))


def test_a_process_finds_this_package_before_whatever_lies_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout of old on a node is not what runs; a module beside the user's model is found."""
    (tmp_path / "lockstep").mkdir()
    (tmp_path / "lockstep/__init__.py").touch()
    (tmp_path / "helper.py").touch()
    package = Path(keeper.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", str(package))
    code = "import helper, lockstep; print(lockstep.__file__)"
    output, _ = asyncio.run(run(order(code, tmp_path)))
    assert output.decode().strip() == str(package / "lockstep/__init__.py")


def test_the_process_knows_whom_to_follow(tmp_path: Path) -> None:
    output, _ = asyncio.run(run(order("import os; print(os.environ['LOCKSTEP_PARENT'])", tmp_path)))
    assert int(output) == os.getpid()
