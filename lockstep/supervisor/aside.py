"""The supervisor in a thread of its own, where its caller's thread cannot be its own: in a notebook a loop runs there
already, and outside of the main thread no signals are heard.

The caller's thread waits, passes signals on, and shows what the supervisor has to say: a notebook puts output below the
cell whose thread has made it. Linux ends a local worker with the *thread* that has started it (see `lockstep.parent`),
so that thread is the supervisor's, which ends after the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from lockstep.progress import Display, Sturdy
from lockstep.signals import listened_to
from lockstep.supervisor.plan import Result

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""What the supervisor listens to, unless the command began with `nohup`."""

Showing = Callable[[Display], None]


class Supervises(Protocol):
    async def run(self) -> Result: ...

    def on_signal(self, number: signal.Signals) -> None: ...


def is_needed() -> bool:
    return not in_main_thread() or asyncio._get_running_loop() is not None


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def heard(on_signal: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Signals go to the running loop for a while. Only the main thread hears them; to another one, `run` passes them
    on."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in listened_to(SIGNALS)} if in_main_thread() else {}
    for number in before:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # asyncio forgets what a caller had there
                signal.signal(number, handler)


def run(build: Callable[[Display], Supervises], display: Display) -> Result:
    """Supervise a job in another thread, and return when both have ended."""
    showings: SimpleQueue[Showing | None] = SimpleQueue()
    supervisor, loop = build(_Relay(showings)), asyncio.new_event_loop()
    result: Future[Result] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:  # asyncio.run is not what it was in all notebooks
                made = runner.run(supervisor.run())
            result.set_result(made)
        except BaseException as error:  # the caller's, whatever it is
            result.set_exception(error)
        finally:
            showings.put(None)

    def tell(number: int, _: FrameType | None = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over, and so is the job
            loop.call_soon_threadsafe(supervisor.on_signal, signal.Signals(number))

    thread = threading.Thread(target=work, name="lockstep-supervisor")
    with _signals(tell):
        thread.start()
        try:
            _show(showings, Sturdy(display))
        except BaseException:  # such as the time limit of a test: nothing may go on that nobody waits for
            tell(signal.SIGINT)
            tell(signal.SIGINT)
            raise
        finally:
            thread.join()
    return result.result()


def _show(showings: SimpleQueue[Showing | None], display: Display) -> None:
    while (show := showings.get()) is not None:
        show(display)


@contextlib.contextmanager
def _signals(tell: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Signals go to the supervisor for a while. A handler has no moment in which a second one would be lost, as there
    would be with an exception that is caught."""
    wanted = listened_to(SIGNALS) if in_main_thread() else []
    numbers = [number for number in wanted if signal.getsignal(number) is not None]
    before: dict[int, Any] = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Relay:
    """A display for the supervisor's thread: what is to be shown waits for the caller's."""

    def __init__(self, showings: SimpleQueue[Showing | None]) -> None:
        self._showings = showings

    def start(self, title: str, first: int, last: int) -> None:
        self._showings.put(lambda display: display.start(title, first, last))

    def train_row(self, row: dict[str, Any]) -> None:
        self._showings.put(lambda display: display.train_row(row))

    def eval_row(self, row: dict[str, Any]) -> None:
        self._showings.put(lambda display: display.eval_row(row))

    def note(self, text: str) -> None:
        self._showings.put(lambda display: display.note(text))

    def close(self) -> None:
        self._showings.put(lambda display: display.close())
