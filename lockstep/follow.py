"""`lockstep evaluate RUN --follow`: evaluates the checkpoints of a run as they appear, in this process, from anywhere.

What it finds goes to a file of its own in the run's directory, `followed.jsonl`, which reports read too; so it knows
after a restart what it has evaluated, and what was the best.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep import checkpoint, device, metrics
from lockstep.evaluate import combine, evaluate_leaf
from lockstep.goal import goal_of, mark_of, own_goal
from lockstep.metrics import MetricsFile, Row
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor.plan import Plan

if TYPE_CHECKING:
    from lockstep.replica import Replica

POLL_SECONDS = 1.0


def follow(plan: Plan, show: Callable[[Row], None], note: Callable[[str], None]) -> list[Row]:
    """Evaluate one checkpoint after the other until the run is over; everything that was ever found this way."""
    path = plan.directory.followed
    rows = [row for row in metrics.read(path) if row["kind"] == "eval" and "digest" in row]
    replica: Replica | None = None
    useless: set[str] = set()
    """Digests of checkpoints that turned out to be damaged."""
    with plan.directory.writing():
        opened = MetricsFile(path, max((row["step"] for row in rows), default=0))
    with opened as file:
        while True:
            is_over = _is_over(plan.directory)  # before looking: a checkpoint may be written between the two
            new = _unseen(plan.directory.checkpoints, useless | {row["digest"] for row in rows})
            if new is not None:
                replica = replica or _replica(plan)
                row = _evaluate(plan, replica, new, rows)
                if row is None:
                    useless.add(new.digest)
                    continue
                rows.append(row)
                file.write(row)
                show(row)
            elif is_over:
                return rows
            else:
                if not rows and replica is None:
                    note(f"{plan.directory.name} has no checkpoint yet: waiting for one")
                    replica = _replica(plan)
                time.sleep(POLL_SECONDS)


def _is_over(directory: RunDirectory) -> bool:
    """Nobody trains it, and it is not that nobody has begun."""
    if directory.is_locked():
        return False
    return any(row["kind"] == "end" for row in metrics.read(directory.metrics)) or bool(
        checkpoint.steps_of(directory.checkpoints)
    )


def _unseen(root: Path, seen: set[str]) -> checkpoint.Info | None:
    """The oldest checkpoint that has not been evaluated."""
    for step in checkpoint.steps_of(root):
        try:
            info = checkpoint.read_info(root / checkpoint.directory_name(step))
        except (checkpoint.Damaged, FileNotFoundError):
            continue  # deleted meanwhile, or broken: training goes on, and so does this
        if info.digest not in seen:
            return info
    return None


def _replica(plan: Plan) -> Replica:
    recipe = plan.recipe
    os.environ.update(device.environment(recipe.threads, recipe.precision))
    from lockstep.replica import Replica

    return Replica(recipe, plan.dataset, plan.num_steps, device.Device(recipe.device, recipe.threads, recipe.precision))


def _evaluate(plan: Plan, replica: Replica, info: checkpoint.Info, before: list[Row]) -> Row | None:
    """A row as the supervisor would write it; None if the checkpoint is damaged or has gone."""
    with checkpoint.pinned(plan.directory.checkpoints, info.step) as (found, _):
        if found is None:
            return None
        replica.load(checkpoint.load(found.path, dict(replica.named_state())))
    results = {
        leaf: evaluate_leaf(replica, plan.dataset.test, plan.recipe.evaluation, leaf)
        for leaf in range(plan.num_evaluation_leaves)
    }
    own = own_goal(plan.recipe)
    figures = combine(results) | mark_of(own)
    goal = goal_of(own, figures)
    best = goal.best([figures[goal.name], *(row[goal.name] for row in before if goal.name in row)])
    row = {"kind": "eval", "step": found.step, "digest": found.digest}
    return {**row, **figures, **goal.best_mark(best), **plan.marks}
