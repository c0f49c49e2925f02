"""TensorBoard's event files, by TensorBoard's own writer. The only file that imports it."""

from __future__ import annotations

import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoardEvents:
    def __init__(self, directory: Path, step: int) -> None:
        self._writer = EventFileWriter(str(directory))
        self.restart(step)

    def restart(self, step: int) -> None:
        """Tell TensorBoard to forget what was written for steps that are done again."""
        restart = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=step + 1, session_log=restart))

    def write(self, scalars: dict[str, float], step: int) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        self._writer.close()
