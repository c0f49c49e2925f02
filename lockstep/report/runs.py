"""`lockstep runs`: what has become of every run, and what misfortunes cost it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep import metrics, rundirectory, strategies
from lockstep.errors import UserError
from lockstep.goal import as_text, best_in, goal_of, own_goal
from lockstep.rundirectory import RunDirectory

if TYPE_CHECKING:
    from rich.table import Table

SPEED_ROWS = 51
"""How many of the newest rows of metrics tell the speed."""
COLUMNS = (
    *("run", "recipe", "state", "step", "N", "top1", "best", "images/s", "died", "joined", "leaves again", "lost"),
    *("digest", "changed"),
)
TEXTS = ("run", "recipe", "state", "digest", "changed")
"""Columns that are aligned at their left."""


@dataclass(frozen=True)
class Summary:
    """One run, as its files tell it."""

    name: str
    recipe: str
    state: str
    """running, finished, stopped, failed, or interrupted if its supervisor ended without a word."""
    step: int
    workers: int
    top1: float | None
    """Of the last evaluation; None where there are no classes."""
    best_top1: float | None
    goal: str
    """The figure that says how good an evaluation is: top1, the recipe's metric, or the loss."""
    score: float | None
    """That figure in the last evaluation."""
    best: float | None
    images_per_second: float | None
    """The median of the newest rows of metrics."""
    deaths: int
    joins: int
    recomputed_leaves: int
    seconds_lost: float
    corruptions: int
    digest: str | None
    """Of the newest checkpoint."""
    is_reproducible: bool
    changed: float
    """When its metrics were last written, in seconds since 1970."""


def summarize(directory: RunDirectory) -> Summary:
    recipe, job = directory.read_config()
    rows = metrics.read(directory.metrics)
    by_kind: dict[str, list[metrics.Row]] = {}
    for row in rows:
        by_kind.setdefault(str(row.get("kind")), []).append(row)
    generations = by_kind.get("generation", [])
    followed = [row for row in metrics.read(directory.followed) if row["kind"] == "eval"]
    evaluations = sorted((*by_kind.get("eval", []), *followed), key=lambda row: int(row["step"]))
    checkpoints = by_kind.get("checkpoint", [])
    goal = goal_of(own_goal(recipe), evaluations[-1] if evaluations else ["top1"])
    return Summary(
        name=directory.name,
        recipe=recipe.name,
        state=_state(directory, rows),
        step=max((row.get("step", 0) for row in (*by_kind.get("train", []), *checkpoints)), default=0),
        workers=job.workers,
        top1=evaluations[-1].get("top1") if evaluations else None,
        best_top1=max((row["best_top1"] for row in evaluations if "best_top1" in row), default=None),
        goal=goal.name,
        score=evaluations[-1].get(goal.name) if evaluations else None,
        best=goal.best([best[1] for row in evaluations if (best := best_in(row)) is not None and best[0] == goal.name]),
        images_per_second=_speed(by_kind.get("train", [])),
        deaths=len(by_kind.get("death", [])),
        joins=sum(len(row.get("joined", ())) for row in generations),
        recomputed_leaves=sum(row.get("recomputed_leaves", 0) for row in generations),
        seconds_lost=sum(row["seconds"] for row in by_kind.get("recovery", [])),
        corruptions=len(by_kind.get("corruption", [])),
        digest=checkpoints[-1]["digest"] if checkpoints else None,
        is_reproducible=strategies.bits(job) != "none",
        changed=rows[-1].get("time", 0.0) if rows else 0.0,
    )


def _speed(rows: list[metrics.Row]) -> float | None:
    speeds = [row["images_per_second"] for row in rows[-SPEED_ROWS:] if "images_per_second" in row]
    return statistics.median(speeds) if speeds else None


def _state(directory: RunDirectory, rows: list[metrics.Row]) -> str:
    if directory.is_locked():
        return "running"
    last = [row["kind"] for row in rows if row.get("kind") in ("start", "end")]
    if not last or last[-1] == "start":
        return "interrupted"
    return str(next(row["state"] for row in reversed(rows) if row["kind"] == "end"))


def summarize_all() -> tuple[list[Summary], list[str]]:
    """All runs in the order of `last`, and what is wrong with those that cannot be read."""
    summaries, problems = [], []
    for directory in rundirectory.all_runs():
        try:
            summaries.append(summarize(directory))
        except UserError as error:
            problems.append(str(error))
    return summaries, problems


def table(summaries: list[Summary]) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in TEXTS else "right", overflow="fold")
    for one in summaries:
        shown.add_row(*map(Text, _cells(one)))
    return shown


def _cells(one: Summary) -> list[str]:
    before = "" if one.goal == "top1" else f"{one.goal} "
    top1 = "" if one.score is None else f"{before}{as_text(one.goal, one.score)}"
    best = "" if one.best is None else as_text(one.goal, one.best)
    speed = "" if one.images_per_second is None else f"{one.images_per_second:.0f}"
    misfortunes = [str(one.deaths or ""), str(one.joins or ""), str(one.recomputed_leaves or "")]
    lost = f"{one.seconds_lost:.1f} s" if one.seconds_lost else ""
    when = time.strftime("%m-%d %H:%M", time.localtime(one.changed)) if one.changed else ""
    figures = [str(one.step), str(one.workers), top1, best, speed]
    return [one.name, one.recipe, one.state, *figures, *misfortunes, lost, short_digest(one), when]


def short_digest(one: Summary) -> str:
    """Its beginning, and whether another run would end on another one."""
    return (one.digest or "")[:12] + ("" if one.is_reproducible or not one.digest else " (varies)")
