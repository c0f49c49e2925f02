"""Which device a process computes on: one for each, and the CPU where there is none."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep import device, parent, rank
from lockstep.engines import meeting
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.request import Request, resolve
from lockstep.supervisor import events as e
from lockstep.supervisor import launching
from tests.supervisor.test_machine import machine, ready


@pytest.mark.parametrize(
    ("visible", "found"), [("", "cpu"), ("-1", "cpu"), ("0", "cuda"), ("2,3", "cuda"), ("GPU-5ebe9a73", "cuda")]
)
def test_the_default_is_a_gpu_and_the_cpu_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, visible: str, found: str
) -> None:
    """F60."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert resolve(demo(), Request()).device == device.choose("auto") == found
    assert resolve(demo(), Request(device="cpu")).device == "cpu"


def test_the_cpu_where_there_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """F60."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device.choose("auto") == "cpu"
    with pytest.raises(UserError, match="no visible GPU"):
        device.choose("cuda")


def test_local_workers_have_one_gpu_each_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """F60: of those that this process may see; a server has none, and where a scheduler chooses, nobody else does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5ebe9a73")

    def gpu_of(role: Any, slot: int, num_workers: int = 3, assigns_devices: bool = False) -> str | None:
        recipe = replace(demo(), device="cuda")
        return launching.environment(recipe, num_workers, role, slot, assigns_devices).get("CUDA_VISIBLE_DEVICES")

    assert [gpu_of("worker", slot) for slot in range(3)] == ["4", "GPU-5ebe9a73", "4"]
    assert gpu_of("evaluator", 0, num_workers=1) == "GPU-5ebe9a73", "the one that no worker has"
    assert gpu_of("server", 0) is None
    assert gpu_of("worker", 0, assigns_devices=True) is None


def test_a_replacement_has_the_gpu_of_the_worker_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """F60: and not one that another worker computes on."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    recipe, one = replace(demo(), device="cuda"), ready(machine(3))

    def gpus(actions: list[e.Action]) -> dict[int, str]:
        started = [action for action in actions if isinstance(action, e.Start)]
        variables = {new.worker: launching.environment(recipe, 3, new.role, new.slot, False) for new in started}
        return {worker: found["CUDA_VISIBLE_DEVICES"] for worker, found in variables.items()}

    assert gpus(one.handle(e.Gone(1, "died", is_death=True))) == {3: "5"}
    assert gpus(one.handle(e.Gone(0, "died", is_death=True))) == {4: "4"}


def test_a_rank_of_a_launcher_has_the_gpu_of_its_place_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """F60: rank 0 knows only the GPUs of its own host."""
    ours, theirs = socket.socketpair()
    variables = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n0", "MASTER_PORT": "23456"}
    for name, value in {**variables, "CUDA_VISIBLE_DEVICES": "6,7"}.items():
        monkeypatch.setenv(name, value)
    message = {"environment": {"CUDA_VISIBLE_DEVICES": "0"}, "log": "log", "arguments": []}
    monkeypatch.setattr(meeting, "find", lambda place: ours)
    monkeypatch.setattr(rank, "_part", lambda connection, place: message)
    monkeypatch.setattr(rank, "_redirect", lambda log, variables: None)

    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        os.close(int(environment[parent.LEASH]))
        raise SystemExit(environment["CUDA_VISIBLE_DEVICES"])

    monkeypatch.setattr(os, "execve", execve)
    with theirs, pytest.raises(SystemExit, match=r"^7$"):
        rank.take_part("env")
