"""Random kills, stops and resizes of a running job, from a printed seed: the digest is that of an undisturbed run."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import RECIPE, digest_in, run, start
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


def chaos(workspace: Path, seed: int, events: int, steps: int) -> None:
    numbers = random.Random(seed)
    arguments = [*RECIPE, "--steps", str(steps), "--set", "evaluation.every_steps=300", "--set", "log_every=10"]
    process = start("train", *arguments, "--workers", "3", "--patience", "3", "--run", "run", cwd=workspace)
    told = [f"seed {seed}"]
    try:
        wait_for_step(process, "run", 10)
        shared_memory = sorted(path.name for path in Path("/dev/shm").iterdir())
        for _ in range(events):
            time.sleep(numbers.uniform(0.2, 2.5))  # the moment is the point, not a wait for something
            if process.poll() is not None:
                break
            told.append(disturb(numbers, process.pid))
        children = psutil.Process(process.pid).children() if process.poll() is None else []
        out, err = process.communicate(timeout=300)
    except BaseException:
        process.kill()
        print("\n".join(told))
        raise
    print("\n".join([*told, out, err]))
    assert process.returncode == 0
    whole = digest_in(run("train", *arguments, "--workers", "2", "--run", "whole", timeout=300))
    assert out.splitlines()[-1] == f"digest {whole}"
    assert len(rows_of("run", "death")) >= events // 3
    assert [row["loss"] for row in rows_of("run", "train")] == [row["loss"] for row in rows_of("whole", "train")]
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert sorted(path.name for path in Path("/dev/shm").iterdir()) == shared_memory


@pytest.mark.timeout(300)
def test_fifteen_misfortunes_change_no_bit(workspace: Path) -> None:
    chaos(workspace, seed=random.SystemRandom().randrange(10**6), events=15, steps=2000)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_hundred_misfortunes_change_no_bit(workspace: Path) -> None:
    chaos(workspace, seed=random.SystemRandom().randrange(10**6), events=100, steps=14_000)
