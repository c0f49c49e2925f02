"""Which checkpoint a user means: the newest good one of a run, the best, that of a step, or a directory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from lockstep import checkpoint, initial, rundirectory
from lockstep.config import Recipe
from lockstep.errors import UserError, nearest
from lockstep.goal import goal_of, own_goal
from lockstep.progress import Display
from lockstep.rundirectory import RunDirectory

CHOICES = "`best`, `last` or the number of a step"


@contextmanager
def pinned(directory: RunDirectory, wanted: str | int | None, display: Display) -> Iterator[checkpoint.Info]:
    """The checkpoint that a user asks for; it cannot vanish meanwhile."""
    step = _step_of(directory, wanted)
    with checkpoint.pinned(directory.checkpoints, step) as (found, problems):
        if found is None:
            raise _no_checkpoint(directory, step, problems)
        for sentence in checkpoint.describe_damage(problems, is_another_good=True):
            display.note(sentence)
        yield found


def _step_of(directory: RunDirectory, wanted: object) -> int | None:
    """The step that `--checkpoint` says; None for the newest."""
    if not isinstance(wanted, bool) and isinstance(wanted, Integral) and int(wanted) >= 0:  # NumPy's too
        return int(wanted)
    if not isinstance(wanted, str | None):
        raise UserError(f"--checkpoint takes {CHOICES}, not {wanted!r}")
    if wanted is None or wanted == "last":
        return None
    if wanted == "best":
        best = best_of(directory, checkpoint.newest_good(directory.checkpoints)[0])
        if best is None:
            raise UserError(f"{directory.name} has not been evaluated yet, so none of its checkpoints is the best")
        return int(best["step"])
    if not wanted.isdecimal():
        close = nearest(wanted, ("best", "last"))
        hint = f": did you mean {close!r}?" if close is not None else ""
        raise UserError(f"--checkpoint takes {CHOICES}, not {wanted!r}{hint}")
    return int(wanted)


def _no_checkpoint(directory: RunDirectory, step: int | None, problems: list[str]) -> UserError:
    if problems:
        return UserError(f"{problems[0]}: use another checkpoint")
    steps = checkpoint.steps_of(directory.checkpoints)
    if step is None or not steps:
        hint = f"train it first with `lockstep resume {shlex.quote(directory.name)}`"
        return UserError(f"{directory.name} has no checkpoint yet: {hint}")
    return UserError(f"{directory.name} has no checkpoint of step {step}: there are {', '.join(map(str, steps))}")


def best_of(directory: RunDirectory, newest: checkpoint.Info | None) -> dict[str, Any] | None:
    """The best evaluation so far, from best.json or, if that is lost, from the checkpoint."""
    stored = directory.read_json("best.json")
    known = [one for one in (stored, newest.best if newest else None) if isinstance(one, dict) and "step" in one]
    if not known:
        return None
    goal = goal_of(own_goal(directory.read_config()[0]), known[0])
    values = [float(one[goal.name]) for one in known if goal.name in one]
    best = next((one for one in known if one.get(goal.name) == goal.best(values)), None)
    return None if best is None else {goal.name: best[goal.name], "step": best["step"]}


def refuse_script(recipe: Recipe, directory: RunDirectory) -> None:
    """What only a script knows cannot be done without it."""
    if recipe.script is not None:
        raise UserError(
            f"{directory.name} was trained by {recipe.script.path}, which alone knows its model and data: do it there, "
            f"with the weights of {directory.checkpoints}/step-*/{checkpoint.FILES[0]}"
        )


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
        raise UserError(f"{what}: train it with `lockstep resume {shlex.quote(directory.name)}`")
    return newest


def with_start(recipe: Recipe) -> Recipe:
    """With the very file that training starts from, and its checksum: workers look whether theirs is the same."""
    if recipe.init is None:
        return recipe
    path = _file_of_weights(recipe.init)
    sha256 = initial.checksum(path)
    if recipe.init_sha256 not in (None, sha256):
        raise UserError(
            f"{path} is not the file any more that this recipe starts from: name the one to take with --init"
        )
    return replace(recipe, init=str(path), init_sha256=sha256)


def _file_of_weights(asked: str) -> Path:
    """A file, or that of a run's newest good checkpoint, or of one checkpoint: of the moving average if it has one."""
    path = Path(asked).expanduser()
    if path.is_file():
        return path.absolute()
    if not path.is_dir() and path.suffix in initial.SUFFIXES:
        raise UserError(f"there is no file {asked}: give --init a file of weights, or a run")
    found = find_checkpoint(asked).path.absolute()
    return found / (checkpoint.AVERAGE if checkpoint.AVERAGE in checkpoint.files_of(found) else checkpoint.FILES[0])
