"""Finds the very step and tensor in which two runs part, by doing the steps of both again, side by side."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep import checkpoint, device, strategies
from lockstep.config import Job
from lockstep.configfile import to_plain
from lockstep.errors import JobError
from lockstep.supervisor.plan import Plan


@dataclass(frozen=True)
class Found:
    """What came out of doing it again."""

    start: int
    """The step from which it was done again."""
    step: int | None
    """After so many steps the two differ; None if they do not."""
    tensors: tuple[str, ...] = ()
    """Those that differ then, in the order of the model."""
    largest: float = 0.0
    """The largest difference of a number in the first of them."""
    digests: tuple[str, str] = ("", "")
    """What both have at the end."""


class Process:
    """One run, done again in a process that has the environment of a worker."""

    def __init__(self, plan: Plan, start: Path | None) -> None:
        recipe = plan.recipe
        environment = {**os.environ, **device.environment(recipe.threads, recipe.precision)}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115, `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.replay"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        config = to_plain(recipe, alone(plan.job))
        self._send(json.dumps({"config": config, "num_steps": plan.num_steps, "start": start and str(start)}))
        self._name = plan.directory.name

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ask(self, command: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # `answer` says why
            self._send(command)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = self._log.read().strip().splitlines()[-1:]
            raise JobError(f"the steps of {self._name} could not be done again: {''.join(last)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def alone(job: Job) -> Job:
    """The same bits from one process that needs no other."""
    if strategies.bits(job) == "common":
        return Job(workers=1)
    return Job(workers=1, strategy=job.strategy, local_steps=job.local_steps, outer=job.outer)


def common_start(plans: list[Plan], agreed: int | None) -> Path | None:
    """The newest good checkpoint of either run up to where both were known to be the same; None for the beginning."""
    if agreed is None:
        return None
    found = [checkpoint.newest_good(plan.directory.checkpoints, agreed)[0] for plan in plans]
    known = [info for info in found if info is not None]
    return max(known, key=lambda info: info.step).path if known else None


def find(first: Plan, second: Plan, start: Path | None, until: int, progress: Callable[[int], None]) -> Found:
    """Do the steps of both again, from `start` on, until they differ or `until` steps are done."""
    with contextlib.ExitStack() as stack:
        processes = [Process(plan, start) for plan in (first, second)]
        for process in processes:
            stack.callback(process.close)
        answers = [process.answer() for process in processes]
        began = int(answers[0]["step"])
        while answers[0]["tensors"] == answers[1]["tensors"] and answers[0]["step"] < until:
            for process in processes:
                process.ask("step")
            answers = [process.answer() for process in processes]
            progress(int(answers[0]["step"]))
        digests = (str(answers[0]["digest"]), str(answers[1]["digest"]))
        names = _differing(answers[0]["tensors"], answers[1]["tensors"])
        if not names:
            return Found(began, None, digests=digests)
        return Found(began, int(answers[0]["step"]), names, _largest(processes, names[0]), digests)


def _differing(first: dict[str, str], second: dict[str, str]) -> tuple[str, ...]:
    names = [*first, *(name for name in second if name not in first)]
    return tuple(name for name in names if first.get(name) != second.get(name))


def _largest(processes: list[Process], name: str) -> float:
    """The largest difference; infinite where the shapes are not the same, or only one run has the tensor."""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory(prefix="lockstep-diff-") as directory:
        states = []
        for number, process in enumerate(processes):
            path = f"{directory}/{number}.safetensors"
            process.ask(f"save {path}")
            process.answer()
            states.append(load_file(path).get(name))
        one, other = states
    if one is None or other is None or one.shape != other.shape:
        return float("inf")
    return float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))
