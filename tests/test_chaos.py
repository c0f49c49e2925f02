"""Random kills, stops and resizes of a running job, from a printed seed: the digest is that of an undisturbed run."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import ENDLESS, run, start, stop_and_compare
from tests.test_resume import rows_of, wait_for_step

psutil = pytest.importorskip("psutil")


def workers_of(supervisor: int) -> list[int]:
    """The workers that have come so far as to train, by pid."""
    return [child.pid for child in psutil.Process(supervisor).children() if child.num_threads() > 2]


def disturb(numbers: random.Random, supervisor: int) -> str:
    """One random misfortune."""
    kind = numbers.choice(["kill", "kill", "kill", "two", "stop", "resize"])
    workers = workers_of(supervisor)
    if kind == "resize" or not workers:
        size = numbers.randint(1, 4)
        assert run("resize", "run", str(size)).returncode == 0
        return f"resize {size}"
    victims = numbers.sample(workers, min(len(workers), 2 if kind == "two" else 1))
    for pid in victims:
        psutil.Process(pid).send_signal(signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    return f"{kind} {victims}"


def newest_step(name: str) -> int:
    return max((row["step"] for row in rows_of(name, "train")), default=0)


def chaos(seed: int, events: int) -> None:
    numbers = random.Random(seed)
    options = ["--set", "log_every=7", "--set", "checkpoints.every_steps=25"]
    process = start("train", *ENDLESS, *options, "--workers", "3", "--patience", "3", "--run", "run")
    told = [f"seed {seed}"]
    try:
        wait_for_step(process, "run", 10)
        shared_memory = sorted(path.name for path in Path("/dev/shm").iterdir())
        for number in range(events):
            time.sleep(numbers.uniform(0.2, 2.5))  # the moment is the point, not a wait for something
            if number % 2 == 0:  # more in a row without a step would be a crash loop, which ends a job
                wait_for_step(process, "run", newest_step("run") + 10)
            told.append(disturb(numbers, process.pid))
        wait_for_step(process, "run", newest_step("run") + 10)
        descriptors = psutil.Process(process.pid).num_fds()
        children = psutil.Process(process.pid).children()
        stop_and_compare(process, "run", *options)
    except BaseException:
        process.kill()
        print("\n".join(told))
        raise
    assert len(rows_of("run", "death")) >= events // 3
    assert descriptors < 60  # a connection, a pidfd and little more for each worker, however many there were
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert sorted(path.name for path in Path("/dev/shm").iterdir()) == shared_memory


@pytest.mark.timeout(300)
def test_fifteen_misfortunes_change_no_bit(workspace: Path) -> None:
    chaos(seed=random.SystemRandom().randrange(10**6), events=15)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_hundred_misfortunes_change_no_bit(workspace: Path) -> None:
    chaos(seed=random.SystemRandom().randrange(10**6), events=100)
