"""metrics.csv: the same rows as metrics.jsonl, always."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lockstep.loggers import Session
from lockstep.loggers.csv import COLUMNS, Csv
from lockstep.metrics import MetricsFile, Row
from lockstep.rundirectory import RunDirectory

ROW: Row = {"kind": "train", "time": 1.5, "loss": 2.25, "top1": 0.5, "top5": 1.0, "lr": 0.1, "spans": {"data": 1}}


def steps_in(directory: Path) -> list[int]:
    with (directory / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


def write(directory: Path, first_step: int, steps: list[int], told: list[int]) -> Csv:
    """A session that wrote some rows, of which the logger was told some before all ended."""
    metrics = MetricsFile(directory / "metrics.jsonl", first_step)
    logger = Csv(Session(RunDirectory(directory), first_step, {}))
    for step in steps:
        metrics.write({**ROW, "step": step})
    metrics.close()
    for step in told:
        logger.row({**ROW, "step": step})
    return logger


def test_columns_are_stable_and_what_is_missing_is_empty(tmp_path: Path) -> None:
    write(tmp_path, 0, [1], [1]).close("finished")
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines == [",".join(COLUMNS), "train,1,1.5,2.25,0.5,1.0,,0.1,,,"]


def test_a_resume_cuts_rows_that_are_done_again_and_adds_lost_ones(tmp_path: Path) -> None:
    """The first session was killed before the logger was told of step 3, after a line that was torn."""
    write(tmp_path, 0, [1, 2, 3, 4, 5], [1, 2, 4, 5]).close("failed")
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("train,6,17")
    logger = write(tmp_path, 3, [4], [4])
    assert steps_in(tmp_path) == [1, 2, 3, 4]
    logger.close("finished")


def test_going_back_cuts_rows_of_wrong_bits(tmp_path: Path) -> None:
    logger = write(tmp_path, 0, [1, 2, 3], [1, 2, 3])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "rollback", "step": 1}\n')
    logger.go_back(1)
    assert steps_in(tmp_path) == [1]
    logger.row({**ROW, "step": 2})
    assert steps_in(tmp_path) == [1, 2]
    logger.close("finished")


def test_half_a_line_on_a_full_disk_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may grow to 20 bytes beyond the first row, which is half of the second."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    logger = write(tmp_path, 0, [1], [1])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "metrics.csv").stat().st_size + 20, before[1]))
        with pytest.raises(OSError, match="part"):
            logger.row({**ROW, "step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    logger.row({**ROW, "step": 3})
    assert steps_in(tmp_path) == [1, 3]
    logger.close("finished")


def test_rows_that_were_written_before_the_logger_was_open_are_there_once(tmp_path: Path) -> None:
    """It opens in a thread of its own, when the supervisor may have gone on; what it is told then comes on top."""
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0)
    metrics.write({**ROW, "step": 1})
    metrics.close()
    logger = Csv(Session(RunDirectory(tmp_path), 0, {}))
    logger.row({**ROW, "step": 1})
    assert steps_in(tmp_path) == [1]
    logger.close("finished")
