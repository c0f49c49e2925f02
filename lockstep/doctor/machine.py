"""Checks of the machine: processor, GPUs, cores, memory, shared memory, limits of a process."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

from lockstep import device, host
from lockstep.doctor.finding import GIB, MIB, Finding, Level

SHARED_MEMORY = Path("/dev/shm")
WORKER_BYTES = GIB // 2
"""About what a worker with a small model takes."""
ENOUGH_FILES, FEW_FILES = 1024, 64
"""Open files: the usual limit, and what four workers just get along with."""
ENOUGH_SHARED_BYTES = 256 * MIB


def cpu() -> Finding:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    what = f"{host.processor()}, torch uses {capability}"
    if capability == "DEFAULT":
        return Finding("warning", "processor", what, "training is slow without AVX2 or its like: take another machine")
    return Finding("ok", "processor", what)


def gpus() -> Finding:
    import torch

    count = device.count_gpus()
    if not count:
        return Finding("ok", "gpus", "none, training is on the CPU")
    if not torch.cuda.is_available():
        built = "is built for CPUs" if torch.version.cuda is None else f"wants CUDA {torch.version.cuda}"
        return Finding(
            "problem",
            "gpus",
            f"{count} in the machine, but torch cannot use them: it {built}",
            "install a torch that fits the driver, or train with --device cpu",
        )
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return Finding("ok", "gpus", f"{'; '.join(gpu_names())}; CUDA {torch.version.cuda}, NCCL {nccl}")


def gpu_names() -> list[str]:
    """Name and memory of each, as the driver tells them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return told.stdout.splitlines()


def cores() -> Finding:
    usable, there, quota = host.count_cores(), os.cpu_count() or 1, host.cpu_quota()
    what = f"{usable} of {there} usable"
    if quota is not None and quota < host.count_affinity():
        return Finding(
            "warning",
            "cores",
            f"{what}: a cgroup grants the time of {quota:.2g}",
            "raise the limit of the container or job (`docker run --cpus`, `--cpus-per-task`) to use more workers",
        )
    if usable < there:
        advice = "start it without `taskset`, or ask the scheduler for more cores, to use more workers"
        return Finding("warning", "cores", f"{what}: the affinity of this process is limited", advice)
    return Finding("ok", "cores", f"{what}, so {usable} {'worker' if usable == 1 else 'workers'} with one thread each")


def memory() -> Finding:
    available, limit = host.memory_available(), host.memory_limit()
    limited = "" if limit is None else f", a cgroup limits it to {limit / GIB:.1f} GiB"
    what = f"{available / GIB:.1f} GiB of {host.memory_bytes() / GIB:.1f} GiB available{limited}"
    if available < WORKER_BYTES:
        return Finding("problem", "memory", what, "a worker needs about 0.5 GiB: end other programs or raise the limit")
    if available < WORKER_BYTES * host.count_cores():
        fitting = available // WORKER_BYTES
        return Finding("warning", "memory", what, f"train with --workers {fitting} or fewer, or raise the limit")
    return Finding("ok", "memory", what)


def shared_memory() -> Finding:
    if not SHARED_MEMORY.is_dir():
        return Finding("ok", "shared memory", f"this system has no {SHARED_MEMORY}")
    size = shutil.disk_usage(SHARED_MEMORY)
    what = f"{size.free / MIB:.0f} MiB of {size.total / MIB:.0f} MiB free in {SHARED_MEMORY}"
    if size.free < ENOUGH_SHARED_BYTES:
        advice = "GPUs and data processes talk through it: give the container more (`docker run --shm-size 1g`)"
        return Finding("warning", "shared memory", what, advice)
    return Finding("ok", "shared memory", what)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH_FILES:
        return Finding("ok", "open files", f"up to {'any number' if soft == resource.RLIM_INFINITY else soft}")
    can = hard == resource.RLIM_INFINITY or hard >= ENOUGH_FILES
    how = f"`ulimit -n {ENOUGH_FILES}` before the start" if can else "ask the administrator for a higher hard limit"
    level: Level = "problem" if soft < FEW_FILES else "warning"
    return Finding(level, "open files", f"only {soft} at a time", f"every worker needs some: {how}")
