"""Ray for the benchmarks: a cluster of one node that is there as long as a block, and Ray Train on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import contestants
from bench.contestants import PEER_VARIABLES, RECIPES, PeerRun, read_json
from bench.results import ROOT


@contextmanager
def cluster(cores: int) -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-m", "bench.peers.raynode", str(cores)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            lines = (line.strip() for line in process.stdout)
            address = next((line for line in lines if line.rpartition(":")[2].isdigit()), None)
            if address is None:
                raise RuntimeError("no cluster of Ray could be started")
            yield address
        finally:
            process.stdin.close()


def train(directory: Path, address: str, recipe: str, *, world: int, leaves: int, steps: int) -> PeerRun:
    """What the first worker of Ray Train measured."""
    directory.mkdir(parents=True)
    out, log, started = directory / "rank0.json", directory / "driver.log", time.time()
    command = train_command(address, recipe, world=world, leaves=leaves, steps=steps, out=out)
    with contestants.started_process(command, log, PEER_VARIABLES) as process:
        contestants.finish(process, log, started)
    return PeerRun(**read_json(out))


def train_command(address: str, recipe: str, *, world: int, leaves: int, steps: int, out: Path) -> list[str]:
    command = [sys.executable, "-m", "bench.peers.raytrain", f"{RECIPES}:{recipe}", "--leaves", str(leaves)]
    return [*command, "--steps", str(steps), "--world", str(world), "--address", address, "--out", str(out)]
