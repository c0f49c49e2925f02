"""`metrics.csv`: the rows of kind `train` and `eval` as a table, for spreadsheets and data frames.

The columns are always the same, but for a metric of the recipe's own; what a row does not have is empty. At a start, a
resume and a going-back the file is written anew from `metrics.jsonl`, without the rows of steps that are done again; in
between rows are appended.
"""

from __future__ import annotations

import csv
import io
import os

from lockstep import metrics
from lockstep.histogram import Histogram
from lockstep.loggers import Session
from lockstep.metrics import Row

COLUMNS = (
    *("kind", "step", "time", "loss", "top1", "top5", "best_top1"),
    *("lr", "steps_per_second", "images_per_second", "examples"),
)


class Csv:
    def __init__(self, session: Session) -> None:
        self._path = session.directory.path / "metrics.csv"
        self._metrics = session.directory.metrics
        self._file: io.FileIO | None = None
        reference = session.recipe.get("metric")
        name = None if reference is None else reference.rpartition(":")[2]
        self._columns = (*COLUMNS, *([] if name is None else [name, f"best_{name}"]))
        self._write_anew()

    def row(self, row: Row) -> None:
        assert self._file is not None
        end = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(line := self._line(row))
            if written != len(line):
                raise OSError(f"{self._path.name} could only be written in part")
        except OSError:
            self._file.truncate(end)  # half a line would spoil the next one
            raise

    def image(self, tag: str, png: bytes, step: int) -> None:
        pass

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        pass

    def go_back(self, step: int) -> None:
        self._write_anew()

    def close(self, state: str) -> None:
        if self._file is not None:
            self._file.close()

    def _write_anew(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        rows = [row for row in metrics.read_before(self._metrics) if row["kind"] in metrics.FIGURES]
        with temporary.open("wb") as file:
            head = self._line(dict(zip(self._columns, self._columns, strict=True)))
            file.write(head + b"".join(map(self._line, rows)))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._path)
        self.close("")
        self._file = io.FileIO(self._path, "a")

    def _line(self, row: Row) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self._columns, extrasaction="ignore", lineterminator="\n").writerow(row)
        return text.getvalue().encode()


def open_logger(session: Session) -> Csv:
    return Csv(session)
