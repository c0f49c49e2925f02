"""A comparison as a picture. The only file that imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import UserError
from lockstep.report.comparison import Run
from lockstep.report.curves import Happening, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (11.0, 4.0)
DOTS_PER_INCH = 150
COLOURS = ("#0969da", "#e16f24", "#1a7f37", "#8250df", "#bf8700", "#1b7c83", "#cf222e", "#6e7781")
"""Those of the page."""


def draw(runs: list[Run], path: Path) -> None:
    """Accuracy against steps, where runs of one recipe coincide, and against time, where they do not."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("--png needs matplotlib: pip install 'lockstep-train[report]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import PercentFormatter

    goals = dict.fromkeys(run.summary.goal for run in runs)
    figure, (by_step, by_time) = pyplot.subplots(1, 2, figsize=INCHES, sharey=True, layout="constrained")
    for number, run in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        # Where curves coincide, those below stay visible: the first is the widest.
        wide = 1.5 + 2.0 * min(len(runs) - 1 - number, 4)
        _add(by_step, run, {"color": colour, "linewidth": wide}, lambda point: point.step)
        _add(by_time, run, {"color": colour, "linewidth": 1.5}, lambda point: point.seconds)
    by_step.set(xlabel="steps", ylabel=f"{' or '.join(goals)} in evaluation")
    if [*goals] == ["top1"]:
        by_step.yaxis.set_major_formatter(PercentFormatter(1.0))
    by_time.set(xlabel="seconds")
    by_time.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {path} ({getattr(error, 'strerror', None) or error})") from None
    finally:
        pyplot.close(figure)


def _add(axes: Axes, run: Run, look: dict[str, Any], place: Callable[[Point | Happening], float | None]) -> None:
    """A curve, with a cross for every death and a ring for every join at the height that it has there."""
    name = run.summary.name.replace("$", r"\$").lstrip("_")  # no formulas, and none is hidden from the legend
    placed = [(at, point.value) for point in run.course.top1 if (at := place(point)) is not None]
    across, values = [at for at, _ in placed], [value for _, value in placed]
    axes.plot(across, values, marker=".", markersize=2 * look["linewidth"] + 4, label=name, **look)
    for what, marker in (("death", "X"), ("join", "o")):
        chosen = [one for one in run.course.happenings if one.is_join == (what == "join")]
        found = [at for one in chosen if (at := place(one)) is not None]
        if found and values:
            heights = [_height(at, across, values) for at in found]
            label = f"{what} in {name}"
            inside = look["color"] if what == "death" else "white"
            edge = "black"
            axes.plot(
                found,
                heights,
                marker,
                markersize=9,
                zorder=3,
                label=label,
                markerfacecolor=inside,
                markeredgecolor=edge,
            )
    axes.grid(visible=True, alpha=0.3)


def _height(at: float, across: list[float], values: list[float]) -> float:
    """Of a curve at some place: on the line between its points, and beyond them that of the nearest."""
    import numpy as np

    return float(np.interp(at, across, values))
