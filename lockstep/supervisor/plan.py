"""What the supervisor is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.checkpoint import Info
from lockstep.config import Job, Recipe
from lockstep.data.source import Dataset
from lockstep.engines import Role
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor.events import Outcome
from lockstep.supervisor.roster import Losses


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A job that has been checked and can start."""

    recipe: Recipe
    """What is trained, its scale worked in."""
    job: Job
    directory: RunDirectory
    dataset: Dataset
    """What the recipe's data are; workers open them themselves."""
    num_steps: int
    """The length of the recipe, which schedules see."""
    last_step: int
    """Training ends after so many steps: the whole length, or less."""
    num_evaluation_leaves: int
    checkpoint: Info | None
    best: dict[str, Any] | None
    evaluate_only: bool = False
    """Evaluate the checkpoint, and write nothing to the run directory but logs."""
    programs: dict[Role, tuple[str, ...]]
    """The command of every kind of process."""
    files: tuple[Path, ...] = ()
    """Directories of the user's own code."""

    @property
    def has_evaluator(self) -> bool:
        return self.job.evaluator != "none" and not self.evaluate_only

    @property
    def sample(self) -> str:
        """What one of the data is called."""
        return "image" if self.dataset.holds_images else "sample"

    @property
    def marks(self) -> dict[str, Any]:
        """What rows say of the data, where that is not the usual: how what they count is called, and that samples kept
        out of the training set take the place of the test set."""
        counted: dict[str, Any] = {} if self.dataset.holds_images else {"counted": f"{self.sample}s"}
        return counted | ({"held_out": True} if self.recipe.data.hold_out else {})

    @property
    def num_servers(self) -> int:
        return 0 if self.evaluate_only else self.job.servers

    @property
    def first_step(self) -> int:
        return self.checkpoint.step if self.checkpoint is not None else 0


@dataclass(frozen=True)
class Result:
    """How it ended, and the last evaluation."""

    outcome: Outcome
    evaluation: dict[str, Any] | None
    losses: Losses
    is_mixed: bool
    """Whether workers with different arithmetic have taken part."""
    log: Path | None
    """The log of the worker that the outcome is about."""
