"""Lockstep with a stopwatch at the door of the exchange: when each worker came, and when it left.

    python -m bench.traced RECIPE --workers N --steps K --run DIR     train, as `lockstep train` does
    python -m bench.traced worker                                     what its supervisor starts

The spans of a worker cannot tell the exchange from waiting for the slower worker; the times of all workers can, since
processes of one machine share the monotonic clock. Reading them is for `accounting`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

DIRECTORY = "BENCH_TRACE_DIRECTORY"
THREADS = ("control", "heartbeat")
"""The threads of a worker that serve supervision alone."""


def train() -> None:
    """Run a job whose workers are traced, by the same function that the command calls."""
    from lockstep import api, progress
    from lockstep.request import Request

    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--data")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--leaves", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--run", type=Path, required=True)
    given = vars(parser.parse_args())
    recipe, directory = given.pop("recipe"), given.pop("run")
    os.environ[DIRECTORY] = str(directory.resolve())
    request = Request(**given, program=(sys.executable, "-m", "bench.traced", "worker"))
    api.train(recipe, request, run=str(directory), display=progress.display())


def work() -> None:
    """A worker of Lockstep that notes, for every exchange, when it began and ended."""
    from lockstep import strategies, worker

    build = strategies.build

    def traced(*arguments: Any, **named: Any) -> Any:
        strategy = build(*arguments, **named)
        exchange = strategy.exchange
        file = path_of(Path(os.environ[DIRECTORY]), int(os.environ["LOCKSTEP_ID"])).open("w", buffering=1)

        def timed(step: Any) -> Any:
            begin = time.monotonic()
            how = exchange(step)
            end = time.monotonic()
            row = {"step": step.index, "begin": begin, "end": end, "supervision": _supervision()}
            file.write(json.dumps(row) + "\n")  # at once: a dismissed worker ends without closing its files
            return how

        strategy.exchange = timed  # type: ignore[method-assign]
        return strategy

    strategies.build = traced
    worker.main()


def _supervision() -> float:
    """Processor seconds so far of the threads that talk to the supervisor."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name in THREADS and thread.ident is not None
    )


def path_of(directory: Path, worker: int) -> Path:
    return directory / f"exchanges-{worker}.jsonl"


def read(directory: Path, worker: int) -> dict[int, dict[str, float]]:
    """What a worker noted, by step."""
    rows = [json.loads(line) for line in path_of(directory, worker).read_text().splitlines()]
    return {row["step"]: row for row in rows}


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        work()
    else:
        train()
