"""What this host lets a process use: cores, memory, the processor. Affinity and the limits of cgroups count.

Devices are in `device.py`. Everything here is read without torch.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
UNLIMITED = 1 << 60
"""Version 1 of cgroups writes a number of about 2**63 bytes for no limit."""


def count_cores() -> int:
    """Cores that this process may use: those of its affinity, or fewer if a cgroup grants less time than that.

    A quota of one and a half cores counts as one: two workers that wait for each other would be throttled in turns.
    """
    quota = cpu_quota()
    cores = count_affinity()
    return cores if quota is None else max(1, min(cores, int(quota)))


def count_affinity() -> int:
    """Cores on which this process may be scheduled; a cpuset, `taskset` or Slurm narrows them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota() -> float | None:
    """The least number of cores that a cgroup above this process grants; None if none limits it."""
    quotas = []
    for directory in _cgroups("cpu"):
        words = _words(directory / "cpu.max")
        words = words or _words(directory / "cpu.cfs_quota_us") + _words(directory / "cpu.cfs_period_us")
        if len(words) == 2 and words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_bytes() -> int:
    """Memory of the host, or less if a cgroup limits it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit()
    return total if limit is None else min(total, limit)


def memory_limit() -> int | None:
    """The least limit of a cgroup above this process, in bytes; None if none limits it."""
    limits = []
    for directory in _cgroups("memory"):
        for word in _words(directory / "memory.max") or _words(directory / "memory.limit_in_bytes"):
            if word != "max" and int(word) < UNLIMITED:
                limits.append(int(word))
    return min(limits, default=None)


def memory_available() -> int:
    """Memory that new processes can have now, as far as the kernel and the cgroups tell."""
    for line in _lines(PROC / "meminfo"):
        if line.startswith("MemAvailable:"):
            return min(memory_bytes(), int(line.split()[1]) * 1024)
    return memory_bytes()


def _cgroups(controller: str) -> Iterator[Path]:
    """The directories of the cgroups that this process is in, from its own up to the root; version 1, 2 or both."""
    for line in _lines(PROC / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [CGROUPS / controllers, CGROUPS / controller] if controllers else [CGROUPS, CGROUPS / "unified"]
        mount = next((mount for mount in mounts if mount.is_dir()), None)
        if mount is not None:
            # In a container the path may be that of the host: what does not exist here is skipped, its root is there.
            own = mount / path.lstrip("/")
            yield from (one for one in (own, *own.parents) if one.is_relative_to(mount))


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def processor() -> str:
    """The model of the CPU; family and model are told too, because virtual machines hide the rest of the name."""
    facts: dict[str, str] = {}
    for line in _lines(PROC / "cpuinfo"):
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    numbers = [f"{key} {facts[name]}" for key, name in (("family", "cpu family"), ("model", "model")) if name in facts]
    return facts["model name"] + (f" ({', '.join(numbers)})" if numbers else "")
