"""The picture of everyone side by side: bars with their intervals, a panel for each topic. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from bench.plan import OURS
from bench.sidebyside import PEERS, TOPICS, Cells

INCHES = (11.0, 6.4)
DOTS_PER_INCH = 110
COLOUR, OTHERS, FAINT = "#0072b2", "#9aa5b1", "#6e7781"
MORE_IS_BETTER = ("images/s",)


def draw(filled: Cells, path: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=INCHES, sharey=True, layout="constrained")
    for axis, topic in zip(axes.flat, TOPICS, strict=True):
        _panel(axis, filled, topic)
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
    plt.close(figure)


def _panel(axis: Any, filled: Cells, topic: str) -> None:
    unit, words = TOPICS[topic]
    better = "more is better" if unit in MORE_IS_BETTER else "less is better"
    axis.set_title(f"{words}\n{better}", loc="left", fontsize=10)
    for place, peer in enumerate(PEERS):
        cell = filled[peer, topic]
        if not cell.samples:
            axis.text(0, place, " not measured", va="center", fontsize=7, color=FAINT)
            continue
        one = cell.estimate
        low, high = (min(cell.samples), max(cell.samples)) if one.low == -float("inf") else (one.low, one.high)
        axis.barh(place, one.median, color=COLOUR if peer == OURS else OTHERS, height=0.7)
        axis.plot([low, high], [place, place], color="black", linewidth=1.2)
    axis.set_yticks(range(len(PEERS)), [peer.replace("`", "") for peer in PEERS], fontsize=9)
    axis.set_ylim(len(PEERS) - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, axis="x", alpha=0.3)
    axis.set_axisbelow(True)
