"""`lockstep runs`: what has become of every run, and what misfortunes cost it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep import metrics
from lockstep.errors import UserError
from lockstep.rundirectory import ROOT, RunDirectory

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Summary:
    """One run, as its files tell it."""

    name: str
    recipe: str
    state: str
    """running, finished, stopped, failed, or interrupted if its supervisor ended without a word."""
    step: int
    workers: int
    best_top1: float | None
    deaths: int
    joins: int
    recomputed_leaves: int
    seconds_lost: float
    corruptions: int
    digest: str | None
    """Of the newest checkpoint."""
    changed: float
    """When its metrics were last written, in seconds since 1970."""


def summarize(directory: RunDirectory) -> Summary:
    recipe, job = directory.read_config()
    rows = metrics.read(directory.metrics)
    by_kind: dict[str, list[metrics.Row]] = {}
    for row in rows:
        by_kind.setdefault(str(row.get("kind")), []).append(row)
    generations, evaluations = by_kind.get("generation", []), by_kind.get("eval", [])
    checkpoints = by_kind.get("checkpoint", [])
    return Summary(
        name=directory.name,
        recipe=recipe.name,
        state=_state(directory, rows),
        step=max((row.get("step", 0) for row in (*by_kind.get("train", []), *checkpoints)), default=0),
        workers=job.workers,
        best_top1=max((row["best_top1"] for row in evaluations), default=None),
        deaths=len(by_kind.get("death", [])),
        joins=sum(len(row.get("joined", ())) for row in generations),
        recomputed_leaves=sum(row.get("recomputed_leaves", 0) for row in generations),
        seconds_lost=sum(row["seconds"] for row in by_kind.get("recovery", [])),
        corruptions=len(by_kind.get("corruption", [])),
        digest=checkpoints[-1]["digest"] if checkpoints else None,
        changed=rows[-1].get("time", 0.0) if rows else 0.0,
    )


def _state(directory: RunDirectory, rows: list[metrics.Row]) -> str:
    if directory.is_locked():
        return "running"
    last = [row["kind"] for row in rows if row.get("kind") in ("start", "end")]
    if not last or last[-1] == "start":
        return "interrupted"
    return str(next(row["state"] for row in reversed(rows) if row.get("kind") == "end"))


def summarize_all(root: Path = ROOT) -> tuple[list[Summary], list[str]]:
    """All runs, the one that changed last at the end, and what is wrong with those that cannot be read."""
    summaries, problems = [], []
    for path in root.glob("*/config.json"):
        try:
            summaries.append(summarize(RunDirectory(path.parent)))
        except UserError as error:
            problems.append(str(error))
    return sorted(summaries, key=lambda one: one.changed), problems


def table(summaries: list[Summary]) -> Table:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for column in ("run", "state", "step", "N", "top1", "died", "joined", "leaves again", "lost", "digest", "changed"):
        is_text = column in ("run", "state", "digest", "changed")
        shown.add_column(column, justify="left" if is_text else "right", overflow="fold")
    for one in summaries:
        top1 = "" if one.best_top1 is None else f"{one.best_top1:.2%}"
        misfortunes = [str(one.deaths or ""), str(one.joins or ""), str(one.recomputed_leaves or "")]
        lost = f"{one.seconds_lost:.1f} s" if one.seconds_lost else ""
        when = time.strftime("%m-%d %H:%M", time.localtime(one.changed)) if one.changed else ""
        figures = [str(one.step), str(one.workers), top1]
        shown.add_row(one.name, one.state, *figures, *misfortunes, lost, (one.digest or "")[:12], when)
    return shown
