"""What a training or an evaluation gives back: a run that has ended, its figures as plain columns, and its model."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import metrics, selection, spelling, trained
from lockstep.progress import Silent
from lockstep.report.confusion import Confusion
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor.events import STOP_COMMAND
from lockstep.supervisor.roster import Losses

if TYPE_CHECKING:
    from torch import nn

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Run:
    """A run that has ended: finished, or stopped with a checkpoint.

    Here `run` is that of the example of `lockstep.resume`:

    >>> run.name, run.state, len(run.digest)
    ('first', 'finished', 64)
    >>> run.metrics["step"], len(run.metrics["loss"])
    ([1, 2, 3], 3)
    >>> run.evaluation["top1"] == run.evaluations["top1"][-1]
    True
    >>> [path.name for path in run.checkpoints]
    ['step-000000002', 'step-000000003']
    >>> run.load_model("2").training
    False
    """

    directory: Path
    """Where everything about it is."""
    name: str
    """That of the directory."""
    state: str
    """"finished" or "stopped"."""
    digest: str | None
    """Of the final weights; None if the run was stopped before there was a checkpoint."""
    evaluation: dict[str, Any] | None
    """The last evaluation: examples, top1, top5, loss, best_top1; without classes the recipe's metric, or the loss."""
    signal: str = ""
    """What stopped it: the name of a signal, or `lockstep stop`."""
    confusion: Confusion | None = None
    """Which class was taken for which, exactly counted; for the command `lockstep evaluate` alone, and in Python
    `lockstep.runs.evaluate` has it as plain data."""
    losses: Losses = field(default_factory=Losses)
    """What deaths and joins on the way have cost."""
    is_mixed: bool = False
    """Whether workers with different arithmetic have taken part: then the digest promises nothing."""
    is_reproducible: bool = True
    """Whether another run of the same recipe would have this digest."""
    steps_left: int = 0
    """What a run that ended at its `stop_at` has still before it."""

    @property
    def exit_code(self) -> int:
        """As a shell expects it: 0, or 128 and the number of the signal; `lockstep stop` is as good as a SIGTERM."""
        if self.state == "finished":
            return 0
        return 128 + (signal.SIGTERM if self.signal == STOP_COMMAND else signal.Signals[self.signal]).value

    @property
    def metrics(self) -> Columns:
        """The figures of training, a list for each name (`step`, `loss`, `top1`, `lr`, ...), for tables and plots."""
        return columns(self.directory, "train")

    @property
    def evaluations(self) -> Columns:
        """The figures of evaluations, in the same way."""
        return columns(self.directory, "eval")

    @property
    def best_top1(self) -> float | None:
        """The best accuracy that an evaluation has found; None before the first one, and where there is none."""
        if (best := self.best) is not None and "top1" in best:
            return float(best["top1"])
        return max((float(value) for value in self.evaluations.get("top1", ()) if value is not None), default=None)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation: its figure (top1, the recipe's metric, or the loss) by name, and its step."""
        return selection.best_of(RunDirectory(self.directory), None)

    @property
    def checkpoints(self) -> list[Path]:
        """Where the checkpoints are, the newest last."""
        return sorted(RunDirectory(self.directory).checkpoints.glob("step-*"))

    def load_model(self, checkpoint: str | int = "last") -> nn.Module:
        """The trained model on the CPU, as it is evaluated: of the newest checkpoint, the "best", or that of a step."""
        with spelling.respelling():
            return trained.load(f"{self.directory}/", checkpoint, Silent()).model


def columns(directory: Path, kind: str) -> Columns:
    """The rows of one kind as columns; None where a row has no such figure."""
    rows = [row for row in metrics.read(RunDirectory(directory).metrics) if row["kind"] == kind]
    names = dict.fromkeys(name for row in rows for name in row if name != "kind")
    return {name: [row.get(name) for row in rows] for name in names}
