"""`python -m bench.picture RUN RUN ... --out FILE.png`: the same curves by steps, and other curves by seconds.

Two panels from the metrics of runs: train loss above eval top1, on the left against steps, where runs with different
numbers of workers coincide, on the right against seconds since the start, where they do not.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from lockstep import metrics
from lockstep.rundirectory import RunDirectory

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's: told apart by everyone."""

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.edgecolor": "#808080",
    "axes.axisbelow": True,
    "font.size": 10,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Curve:
    """One quantity of one run."""

    steps: list[int]
    seconds: list[float]
    values: list[float]


@dataclass(frozen=True)
class RunCurves:
    label: str
    loss: Curve
    top1: Curve


def read_run(path: Path) -> RunCurves:
    directory = RunDirectory(path)
    _, job = directory.read_config()
    rows = metrics.read(directory.metrics)
    start = rows[0]["time"] if rows else 0.0

    def curve(kind: str, key: str, factor: float = 1.0) -> Curve:
        chosen = [row for row in rows if row["kind"] == kind]
        return Curve(
            [row["step"] for row in chosen],
            [row["time"] - start for row in chosen],
            [factor * row[key] for row in chosen],
        )

    label = "1 worker" if job.workers == 1 else f"{job.workers} workers"
    return RunCurves(label, curve("train", "loss"), curve("eval", "top1", 100.0))


def draw(runs: list[RunCurves], out: Path) -> None:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(10, 5.6), sharex="col", sharey="row", layout="constrained")
        for number, run in enumerate(runs):
            for column, by_seconds in enumerate((False, True)):
                _plot(axes[0][column], run.loss, by_seconds, number, len(runs), run.label, "")
                _plot(axes[1][column], run.top1, by_seconds, number, len(runs), run.label, "o")
        axes[0][0].set_title("against steps: one curve", loc="left", fontweight="bold")
        axes[0][1].set_title("against time: one curve per number of workers", loc="left", fontweight="bold")
        axes[0][0].set_ylabel("train loss")
        axes[1][0].set_ylabel("eval top1 (%)")
        axes[1][0].set_xlabel("steps")
        axes[1][1].set_xlabel("seconds since the start")
        axes[0][1].legend(loc="upper right")
        figure.savefig(out, dpi=150)
        plt.close(figure)


def _plot(axis: Any, curve: Curve, by_seconds: bool, number: int, num_runs: int, label: str, marker: str) -> None:
    # Later curves are thinner, so that those below stay visible where they coincide.
    width = 1.6 + 1.8 * (num_runs - 1 - number)
    positions = curve.seconds if by_seconds else curve.steps
    colour = COLOURS[number % len(COLOURS)]
    axis.plot(
        positions, curve.values, color=colour, linewidth=width, marker=marker, markersize=2 * width + 1, label=label
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description="Draw the curves of runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of runs")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    given = parser.parse_args()
    draw([read_run(path) for path in given.runs], given.out)
    print(given.out)


if __name__ == "__main__":
    main()
