"""TensorBoard's event files, by TensorBoard's own writer. The only file that imports it."""

from __future__ import annotations

import struct

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from lockstep.histogram import Histogram
from lockstep.loggers import Session
from lockstep.metrics import Row, now, scalars

FLUSH_SECONDS = 10
"""So much is lost at most when the supervisor is killed."""


class TensorBoard:
    def __init__(self, session: Session) -> None:
        self._writer = EventFileWriter(str(session.directory.path), flush_secs=FLUSH_SECONDS)
        first = session.first_step
        self._forget_from(first + 1 if first else 0)

    def row(self, row: Row) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(row).items()]
        self._add(values, row["step"], row["time"])

    def image(self, tag: str, png: bytes, step: int) -> None:
        width, height = struct.unpack(">II", png[16:24])  # where the header of a PNG file has them
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=png)
        self._add([Summary.Value(tag=tag, image=image)], step, now())

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        self._add([Summary.Value(tag=tag, histo=_proto(one)) for tag, one in found.items()], step, now())

    def go_back(self, step: int) -> None:
        self._forget_from(step + 1)

    def close(self, state: str) -> None:
        self._writer.close()

    def _add(self, values: list[Summary.Value], step: int, time: float) -> None:
        self._writer.add_event(Event(wall_time=time, step=step, summary=Summary(value=values)))

    def _forget_from(self, step: int) -> None:
        """Tell TensorBoard to forget what was written for steps that are done again."""
        restart = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=now(), step=step, session_log=restart))


def _proto(histogram: Histogram) -> HistogramProto:
    return HistogramProto(
        min=histogram.minimum,
        max=histogram.maximum,
        num=sum(histogram.counts),
        sum=histogram.sum,
        sum_squares=histogram.sum_of_squares,
        bucket_limit=histogram.edges[1:],
        bucket=histogram.counts,
    )


def open_logger(session: Session) -> TensorBoard:
    return TensorBoard(session)
