"""What the doctor says of a machine: each check with readings that are as they should be, and with others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep import device, host
from lockstep.doctor import machine
from lockstep.doctor.finding import GIB, MIB
from tests.conftest import REPOSITORY

Usage = namedtuple("Usage", "total used free")


def give(monkeypatch: pytest.MonkeyPatch, where: Any, **readings: Any) -> None:
    for name, value in readings.items():
        monkeypatch.setattr(where, name, lambda *_, value=value: value)


def test_a_core_of_many_by_a_cgroup_is_a_warning_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, os, sched_getaffinity={0, 1, 2, 3}, cpu_count=4)
    give(monkeypatch, host, cpu_quota=1.0)
    found = machine.cores()
    assert found.level == "warning"
    assert found.what == "1 of 4 usable: a cgroup grants the time of 1"
    assert "docker run --cpus" in found.advice


def test_a_narrow_affinity_is_a_warning_and_all_cores_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, os, sched_getaffinity={0, 1}, cpu_count=4)
    give(monkeypatch, host, cpu_quota=None)
    assert machine.cores().level == "warning"
    assert "taskset" in machine.cores().advice
    give(monkeypatch, os, cpu_count=2)
    assert machine.cores().level == "ok"
    assert "2 workers" in machine.cores().what


def test_the_taskset_of_a_real_process_is_seen() -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core")
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program += "from lockstep.doctor import machine; print(machine.cores().what)"
    said = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("1 of ")


@pytest.mark.parametrize(
    ("limit", "level", "advice"),
    [(100 * MIB, "problem", "raise the limit"), (GIB, "warning", "--workers 2"), (None, "ok", "")],
)
def test_memory_is_what_the_cgroup_leaves(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, level: str, advice: str
) -> None:
    give(monkeypatch, host, memory_limit=limit, count_cores=4, memory_bytes=16 * GIB)
    give(monkeypatch, host, memory_available=limit or 16 * GIB)
    found = machine.memory()
    assert found.level == level
    assert advice in found.advice
    assert ("a cgroup limits it" in found.what) == (limit is not None)


def test_the_shared_memory_of_a_container_is_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
    give(monkeypatch, shutil, disk_usage=Usage(64 * MIB, 0, 64 * MIB))
    found = machine.shared_memory()
    assert (found.level, found.what) == ("warning", f"64 MiB of 64 MiB free in {tmp_path}")
    assert "--shm-size" in found.advice
    give(monkeypatch, shutil, disk_usage=Usage(8 * GIB, 0, 8 * GIB))
    assert machine.shared_memory().level == "ok"


def files_found(soft: int, hard: int) -> str:
    program = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    program += "from lockstep.doctor import machine; f = machine.open_files(); print(f.level, f.what, f.advice)"
    said = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return said.stdout.strip()


def test_a_low_limit_of_open_files_is_found_with_the_way_out() -> None:
    assert files_found(40, 2000) == (
        "problem only 40 at a time every worker needs some: `ulimit -n 1024` before the start"
    )
    assert files_found(300, 500).startswith("warning only 300 at a time every worker needs some: ask the administrator")
    assert files_found(1024, 1024).startswith("ok up to 1024")


def test_a_gpu_that_torch_cannot_use_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, device, count_gpus=2)
    give(monkeypatch, torch.cuda, is_available=False)
    found = machine.gpus()
    assert found.level == "problem"
    assert "--device cpu" in found.advice
    give(monkeypatch, device, count_gpus=0)
    assert machine.gpus().level == "ok"


def test_gpus_are_shown_with_memory_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, device, count_gpus=1)
    give(monkeypatch, torch.cuda, is_available=True)
    give(monkeypatch, torch.cuda.nccl, version=(2, 27, 5))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    give(monkeypatch, machine, gpu_names=["NVIDIA H100, 81559 MiB"])
    assert machine.gpus().what == "NVIDIA H100, 81559 MiB; CUDA 13.0, NCCL 2.27.5"


def test_a_processor_without_vector_units_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, torch.backends.cpu, get_cpu_capability="DEFAULT")
    assert machine.cpu().level == "warning"
    give(monkeypatch, torch.backends.cpu, get_cpu_capability="AVX2")
    assert machine.cpu().level == "ok"
    assert "AVX2" in machine.cpu().what
