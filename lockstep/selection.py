"""Which checkpoint a user means: the newest good one of a run, the best, that of a step, or a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep import checkpoint, rundirectory
from lockstep.errors import UserError
from lockstep.progress import Display
from lockstep.rundirectory import RunDirectory


@contextmanager
def pinned(directory: RunDirectory, wanted: str | None, display: Display) -> Iterator[checkpoint.Info]:
    """The checkpoint that a user asks for; it cannot vanish meanwhile."""
    step = _step_of(directory, wanted)
    with checkpoint.pinned(directory.checkpoints, step) as (found, problems):
        if found is None:
            raise _no_checkpoint(directory, step, problems)
        warn_of(problems, display)
        yield found


def _step_of(directory: RunDirectory, wanted: str | None) -> int | None:
    """The step that `--checkpoint` says; None for the newest."""
    if wanted is None or wanted == "last":
        return None
    if wanted == "best":
        best = best_of(directory, checkpoint.newest_good(directory.checkpoints)[0])
        if best is None:
            raise UserError(f"{directory.name} has not been evaluated yet, so none of its checkpoints is the best")
        return int(best["step"])
    if not wanted.isdecimal():
        raise UserError(f"--checkpoint takes `best`, `last` or the number of a step, not {wanted!r}")
    return int(wanted)


def _no_checkpoint(directory: RunDirectory, step: int | None, problems: list[str]) -> UserError:
    if problems:
        return UserError(f"{problems[0]}: use another checkpoint")
    steps = checkpoint.steps_of(directory.checkpoints)
    if step is None or not steps:
        hint = f"train it first with `lockstep resume {directory.name}`"
        return UserError(f"{directory.name} has no checkpoint yet: {hint}")
    return UserError(f"{directory.name} has no checkpoint of step {step}: there are {', '.join(map(str, steps))}")


def best_of(directory: RunDirectory, newest: checkpoint.Info | None) -> dict[str, Any] | None:
    """The best evaluation so far, from best.json or, if that is lost, from the checkpoint."""
    stored = directory.read_json("best.json")
    known = [one for one in (stored, newest.best if newest else None) if isinstance(one, dict) and "top1" in one]
    best = max(known, key=lambda one: float(one["top1"]), default=None)
    return None if best is None else {"top1": best["top1"], "step": best["step"]}


def warn_of(problems: list[str], display: Display) -> None:
    for problem in problems:
        display.note(f"warning: {problem}; an older checkpoint is used")


def find_checkpoint(target: str) -> checkpoint.Info:
    """The checkpoint that a run, or the directory of a checkpoint, means."""
    path = Path(target)
    try:
        if (path / "checkpoint.json").is_file():
            return checkpoint.verify(path)
        directory = rundirectory.existing(target)
        newest, problems = checkpoint.newest_good(directory.checkpoints)
    except checkpoint.Damaged as damage:
        raise UserError(f"{damage}: use another checkpoint") from None
    if newest is None:
        what = problems[0] if problems else f"{directory.name} has no checkpoint yet"
        raise UserError(f"{what}: train it with `lockstep resume {directory.name}`")
    return newest
