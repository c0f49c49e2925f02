"""What a process may use: affinity and the quotas of cgroups, in the places where kernels and containers put them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep import host

GIB = 1 << 30


class FakeHost:
    """Files as the kernel shows them, in a directory of the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys").mkdir()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "sys")
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return FakeHost(tmp_path)


def test_without_cgroups_the_affinity_counts(fake: FakeHost) -> None:
    assert host.count_cores() == 8
    assert host.cpu_quota() is None
    assert host.memory_limit() is None


def test_a_quota_of_version_2_counts_in_whole_cores_and_at_least_one(fake: FakeHost) -> None:
    fake.write("proc/self/cgroup", "0::/")
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)):
        fake.write("sys/cpu.max", text)
        assert host.count_cores() == cores


def test_the_least_quota_on_the_way_to_the_root_counts(fake: FakeHost) -> None:
    fake.write("proc/self/cgroup", "0::/job/step")
    fake.write("sys/job/cpu.max", "300000 100000")
    fake.write("sys/job/memory.max", str(2 * GIB))
    fake.write("sys/job/step/cpu.max", "max 100000")
    fake.write("sys/job/step/memory.max", "max")
    assert host.count_cores() == 3
    assert host.memory_limit() == 2 * GIB
    assert host.memory_bytes() <= 2 * GIB


def test_version_1_has_other_names_and_numbers_for_no_limit(fake: FakeHost) -> None:
    fake.write("proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/job\n0::/")
    fake.write("sys/cpu,cpuacct/job/cpu.cfs_quota_us", "400000")
    fake.write("sys/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    fake.write("sys/memory/job/memory.limit_in_bytes", str(GIB))
    assert (host.count_cores(), host.memory_limit()) == (4, GIB)
    fake.write("sys/cpu,cpuacct/job/cpu.cfs_quota_us", "-1")
    fake.write("sys/memory/job/memory.limit_in_bytes", "9223372036854771712")
    assert (host.count_cores(), host.memory_limit()) == (8, None)


def test_in_a_container_the_path_may_be_that_of_the_host(fake: FakeHost) -> None:
    fake.write("proc/self/cgroup", "1:cpu:/docker/0123456789")
    fake.write("sys/cpu/cpu.cfs_quota_us", "100000")
    fake.write("sys/cpu/cpu.cfs_period_us", "100000")
    assert host.count_cores() == 1


def test_the_real_host_answers() -> None:
    assert 1 <= host.count_cores() <= (os.cpu_count() or 1)
    assert 0 < host.memory_available() <= host.memory_bytes()
    assert host.processor()


def test_the_affinity_of_this_very_process_counts() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert host.count_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_family_and_model_tell_processors_apart_whose_name_is_hidden(fake: FakeHost) -> None:
    fake.write("proc/cpuinfo", "cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nmodel\t\t: 2")
    assert host.processor() == "AMD EPYC (family 25, model 1)"
