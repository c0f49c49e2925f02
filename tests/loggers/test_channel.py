"""Between the supervisor and a logger: nobody waits for a logger, and none can end a training."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep import cli
from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.histogram import Histogram
from lockstep.loggers import LOGGERS, channel, check_loggers, names_of, show_pictures
from lockstep.loggers.channel import Channel
from lockstep.metrics import Row


class Recorder:
    """A logger that remembers what it was told, and does something first."""

    def __init__(self, first: Callable[[Row], None] = lambda row: None) -> None:
        self._first = first
        self.rows: list[Row] = []
        self.backs: list[int] = []
        self.state = ""

    def row(self, row: Row) -> None:
        self._first(row)
        self.rows.append(row)

    def image(self, tag: str, png: bytes, step: int) -> None:
        raise NotImplementedError

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        raise NotImplementedError

    def go_back(self, step: int) -> None:
        self.backs.append(step)

    def close(self, state: str) -> None:
        self.state = state


def put(to: Channel, *steps: int) -> None:
    for step in steps:
        to.put(lambda logger, step=step: logger.row({"step": step}))  # type: ignore[misc]


def test_rows_arrive_in_order_and_the_end_is_told() -> None:
    logger, warnings = Recorder(), list[str]()
    to = Channel("csv", lambda: logger, warnings.append)
    put(to, *range(50))
    to.finish("stopped")
    to.join(10)
    assert [row["step"] for row in logger.rows] == list(range(50))
    assert (logger.state, warnings) == ("stopped", [])


def test_a_logger_that_raises_is_told_the_next_row_and_warned_of_once() -> None:
    """A full disk, a server that is gone for a while."""

    def fail(row: Row) -> None:
        if row["step"] < 3:
            raise OSError(28, "No space left on device")

    logger, warnings = Recorder(fail), list[str]()
    to = Channel("csv", lambda: logger, warnings.append)
    put(to, 1, 2, 3)
    to.finish("finished")
    to.join(10)
    assert [row["step"] for row in logger.rows] == [3]
    assert len(warnings) == 1
    assert "the logger csv failed ([Errno 28] No space left on device); training goes on" in warnings[0]


@pytest.mark.parametrize(
    "error", [ConnectionError("no server\nand a long story"), SystemExit(1)], ids=["error", "exit"]
)
def test_a_logger_that_cannot_be_opened_is_left_out(error: BaseException) -> None:
    def fail() -> Recorder:
        raise error

    warnings = list[str]()
    to = Channel("mlflow", fail, warnings.append)
    put(to, 1, 2)
    to._thread.join(10)
    put(to, *range(3, channel.MAX_WAITING + 10))  # nobody takes them, and nobody calls the logger slow for it
    to.finish("finished")
    to.join(10)
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: the logger mlflow cannot be opened (")
    assert "\n" not in warnings[0]


def test_a_logger_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into the queue is counted; a going-back always fits; the end waits only for a while."""
    monkeypatch.setattr(channel, "MAX_WAITING", 3)
    begun, go_on = threading.Event(), threading.Event()

    def hang(row: Row) -> None:
        begun.set()
        go_on.wait(30)

    logger, warnings = Recorder(hang), list[str]()
    to = Channel("wandb", lambda: logger, warnings.append)
    put(to, 1)
    assert begun.wait(10)
    put(to, 2, 3, 4, 5, 6)
    to.put(lambda logger: logger.go_back(1), droppable=False)
    to.finish("finished")
    to.join(0)
    assert "wandb did not finish in time" in warnings.pop()
    go_on.set()
    to.join(10)
    assert [row["step"] for row in logger.rows] == [1, 2, 3, 4]
    assert logger.backs == [1]
    assert "too slow, and 2 rows or pictures are missing there" in warnings.pop()


def test_the_loggers_of_a_job_are_each_counted_once() -> None:
    assert names_of(Job(workers=1, loggers=("csv", "tensorboard", "csv"))) == ("tensorboard", "csv")
    assert names_of(Job(workers=1, tensorboard=False)) == ()
    assert show_pictures(Job(workers=1))
    assert not show_pictures(Job(workers=1, tensorboard=False, loggers=("csv",)))
    assert all(Path(*entry.module.split(".")).with_suffix(".py") for entry in LOGGERS.values())


def test_an_unknown_logger_is_refused_by_its_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown logger 'wandbb': did you mean 'wandb'"):
        check_loggers(["wandbb"])


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_extra_is_one_sentence_before_the_start(
    name: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["train", "demo", "--steps", "1", "--logger", name]) == 2
    sentence = f"lockstep: the logger {name} is not installed: pip install 'lockstep-train[{name}]'\n"
    assert capsys.readouterr().err == sentence
    assert not (workspace / "runs").exists()


def test_a_negative_interval_of_histograms_is_refused(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "demo", "--steps", "1", "--histograms-every", "-1"]) == 2
    assert "--histograms-every takes a number of steps" in capsys.readouterr().err
