"""The supervisor in a thread of its own: where a loop runs already, and outside of the main thread."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import lockstep
from lockstep import api, checkpoint
from lockstep.progress import Silent
from lockstep.request import Request
from lockstep.supervisor import aside
from tests.alone import tiny_recipe

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
ENDLESS = Request(workers=2, data="shapes", steps=1_000_000, settings=["evaluation.max_leaves=1", "log_every=1"])


def traces() -> tuple[Any, ...]:
    """What a training could leave behind in this process."""
    gc.collect()  # the mapped files of the data go with what has mapped them
    process = psutil.Process()
    threads = {thread.name for thread in threading.enumerate()}
    return [signal.getsignal(number) for number in NUMBERS], threads, process.num_fds(), process.children()


@pytest.fixture(autouse=True)
def _leaves_nothing(workspace: Path) -> Iterator[None]:
    before = traces()
    yield
    assert traces() == before


class Shown(Silent):
    """Does something at the second step, and knows which threads have shown something."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.threads: set[threading.Thread] = set()
        self.notes: list[str] = []

    def train_row(self, row: dict[str, Any]) -> None:
        self.threads.add(threading.current_thread())
        if row["step"] == 2:
            self._act()

    def note(self, text: str) -> None:
        self.notes.append(text)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def in_a_loop(work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        return work()

    return asyncio.run(main())


def test_the_bits_are_the_same_in_any_thread_and_below_a_loop() -> None:
    """Handlers of the caller come back in the main thread too."""

    def train(name: str) -> str | None:
        made = lockstep.train(tiny_recipe(), workers=2, data="shapes", settings=settings, run=name, progress=False)
        assert made.state == "finished"
        return made.digest

    settings = {"evaluation.max_leaves": 1}
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    before = traces()
    digest = train("main")
    assert digest is not None
    assert traces() == before
    signal.signal(signal.SIGTERM, mine)
    assert in_a_loop(lambda: train("loop")) == digest
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, "thread").result() == digest


def test_an_interrupt_stops_with_a_checkpoint() -> None:
    """It raises nothing, and whoever waits is the one who shows progress."""
    shown = Shown(interrupt)
    run = in_a_loop(lambda: api.train(tiny_recipe(), ENDLESS, run="run", display=shown))
    assert (run.state, run.signal) == ("stopped", "SIGINT")
    newest, _ = checkpoint.newest_good(run.directory / "checkpoints")
    assert newest is not None
    assert newest.digest == run.digest
    assert shown.threads == {threading.main_thread()}
    assert "SIGINT: stopping after a checkpoint (once more to stop at once)" in shown.notes


def test_a_second_interrupt_stops_at_once() -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    run = in_a_loop(lambda: api.train(tiny_recipe(), ENDLESS, run="run", display=Shown(twice)))
    assert (run.state, run.digest, run.checkpoints) == ("stopped", None, [])


def test_nothing_goes_on_that_nobody_waits_for() -> None:
    """An exception that comes to the thread that waits, such as a time limit, ends the run and is its result."""

    def fail() -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        in_a_loop(lambda: api.train(tiny_recipe(), ENDLESS, run="run", display=Shown(fail)))
    assert not (Path("runs/run") / "supervisor.json").exists()


def test_errors_come_out_of_the_thread() -> None:
    """Of workers, and of the supervisor itself."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(lockstep.JobError, match="the loss is not a number"):
        pool.submit(lockstep.train, tiny_recipe(), workers=1, lr=1e30, steps=20, progress=False).result()

    class Broken:
        async def run(self) -> Any:
            raise ZeroDivisionError

        def on_signal(self, number: signal.Signals) -> None: ...

    with pytest.raises(ZeroDivisionError):
        aside.run(lambda display: Broken(), Silent())


def test_a_display_that_cannot_be_written_to_ends_no_training() -> None:
    def fail() -> None:
        raise BrokenPipeError

    request = Request(workers=1, data="shapes", settings=["evaluation.max_leaves=1", "log_every=1"])
    run = in_a_loop(lambda: api.train(tiny_recipe(), request, run="run", display=Shown(fail)))
    assert run.state == "finished"
