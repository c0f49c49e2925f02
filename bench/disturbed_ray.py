"""Ray Train whose workers are killed: Ray starts all of them again, and they resume from a checkpoint."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bench import contestants, onray
from bench.contestants import PEER_VARIABLES, started_process
from bench.disturbed import LEAVES, RECIPE, WORLD, Journals, Run, drive

MAX_RESTARTS = 100


def ray_train(directory: Path, steps: int, kill_at: Sequence[int]) -> Run:
    directory.mkdir(parents=True)
    with onray.cluster(WORLD + 1) as address:  # Ray Train may want a core for itself
        command = onray.train_command(address, RECIPE, world=WORLD, leaves=LEAVES, steps=steps, out=directory)
        command += ["--restarts", str(MAX_RESTARTS)]
        started, log = time.time(), directory / "driver.log"
        with started_process(command, log, PEER_VARIABLES) as process:
            job = _RayTrain(process, directory)
            kills = drive(job, kill_at)
            contestants.finish(process, log, started)
    return Run(job.journals.entries, kills, directory / "final0.safetensors")


class _RayTrain:
    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process = process
        self._directory = directory
        self.journals = Journals(directory)

    def look(self) -> bool:
        goes_on = self._process.poll() is None  # first, so that nothing is written after the last reading
        self.journals.read()
        return goes_on

    @property
    def reached(self) -> int:
        return self.journals.reached

    def members(self) -> list[psutil.Process]:
        """Ray's workers are nobody's children here: each has written down its number."""
        found = []
        for path in sorted(self._directory.glob("rank*.pid")):
            with suppress(psutil.Error, ValueError):
                process = psutil.Process(int(path.read_text()))
                if process.create_time() <= path.stat().st_mtime and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found
