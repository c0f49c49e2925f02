"""Drives the Ray engine without a training, in a process of its own.

`python -m tests.engines.raydriver ADDRESS SCENARIO` prints what came of it as JSON; logs are in the current directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lockstep.engines import ENGINES, Command, Role, Site

Exits = dict[int, tuple[str, bool]]


class Job:
    """An engine, and all that it says."""

    def __init__(self, **site: Any) -> None:
        self.notes: list[str] = []
        self.exits: Exits = {}
        self.engine = ENGINES["ray"].build(Site(address=sys.argv[1], note=self.notes.append, **site))
        self._changed = asyncio.Event()

    async def start(self, id_: int, role: Role, code: str) -> Path:
        log = Path(f"{role}-{id_}.log")
        await self.engine.start(Command(id_, role, [sys.executable, "-c", code], {}, log), self._on_exit)
        return log

    def _on_exit(self, id_: int, how: str, is_death: bool) -> None:
        self.exits[id_] = (how, is_death)
        self._changed.set()

    async def ended(self, number: int) -> Exits:
        while len(self.exits) < number:
            self._changed.clear()
            await self._changed.wait()
        return self.exits


async def devices() -> Any:
    """Two workers on a node with two GPUs, and a server though all cores are taken."""
    job = Job(num_workers=2, num_servers=1, uses_gpus=True, placement="pack")
    await job.engine.open()
    roles: list[Role] = ["worker", "worker", "server"]
    code = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(1)"
    await asyncio.gather(*(job.start(id_, role, code) for id_, role in enumerate(roles)))
    await job.ended(3)
    await job.engine.close(5)


async def deaths() -> Any:
    """An exit code, a signal, a lost actor: how each is reported."""
    job = Job(num_workers=3)
    await job.engine.open()
    await job.start(0, "worker", "import sys; print('last words'); sys.exit(4)")
    await job.start(1, "worker", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    log = await job.start(2, "worker", "import os, time; print(os.getppid(), flush=True); time.sleep(60)")
    await job.ended(2)
    while len(lines := log.read_text().splitlines()) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    os.kill(int(lines[1]), signal.SIGKILL)
    exits = await job.ended(3)
    await job.engine.close(5)
    return exits


async def room() -> Any:
    """More workers than there is room for: a note, and who is killed while waiting never starts. Signals are the
    supervisor's still."""
    job = Job(num_workers=9)
    from lockstep.engines import ray

    ray.NOTE_SECONDS = 0.5
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await job.engine.open()
    waiting = [asyncio.create_task(job.start(id_, "worker", "open('started', 'w')")) for id_ in range(2)]
    done, _ = await asyncio.wait(waiting, timeout=3)
    job.engine.kill(0)
    await waiting[0]
    os.kill(os.getpid(), signal.SIGTERM)
    await stopped.wait()
    await job.engine.close(0.1)
    await waiting[1]
    return {"notes": job.notes, "started": len(done), "exits": job.exits}


if __name__ == "__main__":
    print(json.dumps(asyncio.run({"devices": devices, "deaths": deaths, "room": room}[sys.argv[2]]())))
