"""Between the supervisor and a logger: a thread and a queue, so that nobody waits for a logger but the logger.

The queue is bounded. What comes when it is full is dropped and counted: `metrics.jsonl`, which the supervisor writes
itself, has every row. A logger that raises is told the next row all the same, since a server may come back.
"""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

from lockstep.histogram import Histogram
from lockstep.loggers import LOGGERS, Logger, Session
from lockstep.metrics import Row

MAX_WAITING = 1000
"""How many rows, images and sets of histograms may wait for a logger."""
CLOSE_SECONDS = 30.0
"""How long loggers may take at the end, all together."""

Call = Callable[[Logger], None]
Warn = Callable[[str], None]
"""Shows a sentence to the user; called in the logger's thread."""


class Channel:
    """One logger, in a thread of its own."""

    def __init__(self, name: str, open_: Callable[[], Logger], warn: Warn) -> None:
        self._name = name
        self._open = open_
        self._warn = warn
        self._waiting: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._state = "failed"
        self._is_unusable = False
        """Whether it could not even be opened."""
        self._dropped = 0
        self._failed = 0
        # It must not keep the process from ending when a server never answers.
        self._thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def put(self, call: Call, droppable: bool = True) -> None:
        """Hand something over, and return at once."""
        if self._is_unusable:
            return
        if droppable and self._waiting.qsize() >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.put(call)

    def finish(self, state: str) -> None:
        """Nothing more will come."""
        self._state = state
        self._waiting.put(None)

    def join(self, seconds: float) -> None:
        """Wait until everything is written, but not for ever."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            self._warn(f"warning: the logger {self._name} did not finish in time; its last rows may be missing there")
        elif self._dropped:
            self._warn(
                f"warning: the logger {self._name} was too slow, and {self._dropped} rows or pictures are missing "
                "there; metrics.jsonl has every row"
            )

    def _work(self) -> None:
        try:
            logger = self._open()
        except (Exception, SystemExit) as error:
            self._is_unusable = True
            self._warn(f"warning: the logger {self._name} cannot be opened ({_say(error)}); training goes on without")
            return
        while (call := self._waiting.get()) is not None:
            self._try(call, logger)
        self._try(lambda logger: logger.close(self._state), logger)

    def _try(self, call: Call, logger: Logger) -> None:
        try:
            call(logger)
        except (Exception, SystemExit) as error:
            self._failed += 1
            if self._failed == 1:
                self._warn(f"warning: the logger {self._name} failed ({_say(error)}); training goes on")


def _say(error: BaseException) -> str:
    """The first line of what was raised."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Channels:
    """All loggers of a session."""

    def __init__(self, names: Sequence[str], session: Session, warn: Warn) -> None:
        self._channels = [Channel(name, _opener(name, session), warn) for name in names]

    def row(self, row: Row) -> None:
        self._put(lambda logger: logger.row(row))

    def image(self, tag: str, png: bytes, step: int) -> None:
        self._put(lambda logger: logger.image(tag, png, step))

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        self._put(lambda logger: logger.histograms(found, step))

    def go_back(self, step: int) -> None:
        for channel in self._channels:
            channel.put(lambda logger: logger.go_back(step), droppable=False)

    def close(self, state: str) -> None:
        """Blocks for at most `CLOSE_SECONDS`."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for channel in self._channels:
            channel.finish(state)
        for channel in self._channels:
            channel.join(deadline - time.monotonic())

    def _put(self, call: Call) -> None:
        for channel in self._channels:
            channel.put(call)


def _opener(name: str, session: Session) -> Callable[[], Logger]:
    def open_() -> Logger:
        logger: Logger = importlib.import_module(LOGGERS[name].module).open_logger(session)
        return logger

    return open_
