"""Everything about the numbers of a recipe that can be wrong, each with a sentence that says what to do."""

from __future__ import annotations

import math

from lockstep.config import Recipe
from lockstep.errors import UserError


def check_recipe(recipe: Recipe) -> None:
    """Everything about the numbers of a recipe that can be wrong."""
    r = recipe

    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise UserError(sentence)

    require(
        r.leaves >= 1 and r.leaves & (r.leaves - 1) == 0,
        f"the number of leaves must be a power of two, not {r.leaves}: try {_nearest_power_of_two(r.leaves)}",
    )
    require(r.global_batch >= 1, f"the batch size must be positive, not {r.global_batch}")
    require(
        r.global_batch % r.leaves == 0,
        f"a batch of {r.global_batch} cannot be cut into {r.leaves} equal leaves: take a batch size of "
        f"{max(1, round(r.global_batch / r.leaves)) * r.leaves}, or other --leaves",
    )
    require(
        r.precision != "tf32" or r.device == "cuda",
        "--precision tf32 is a mode of GPUs, and this training is on the CPU: take --precision fp32 or bf16",
    )
    require(r.threads >= 1, f"threads must be at least 1, not {r.threads}")
    require(r.steps is not None or r.epochs is not None, "the recipe has no length: give it steps or epochs")
    require(r.steps is None or r.epochs is None, "give the length either in steps or in epochs, and not in both")
    numbers = (
        r.epochs or 0.0,
        r.schedule.lr,
        r.schedule.warmup,
        r.checkpoints.every_seconds,
        r.checkpoints.every_epochs,
    )
    require(all(map(math.isfinite, numbers)), "lengths, intervals and the learning rate must be finite numbers")
    require(r.steps is None or r.steps >= 1, f"the number of steps must be at least 1, not {r.steps}")
    require(r.epochs is None or r.epochs > 0, f"the number of epochs must be positive, not {r.epochs}")
    require(r.log_every >= 1, f"log_every must be at least 1 step, not {r.log_every}")
    require(0 <= r.seed < 2**63, f"the seed must be between 0 and 2**63 - 1, not {r.seed}")
    require(r.schedule.lr >= 0, f"the learning rate must not be negative, but is {r.schedule.lr}")
    require(
        len(r.schedule.boundaries) == len(r.schedule.factors),
        f"a step schedule needs one factor per boundary, but there are {len(r.schedule.boundaries)} boundaries and "
        f"{len(r.schedule.factors)} factors",
    )
    require(
        list(r.schedule.boundaries) == sorted(r.schedule.boundaries), "the boundaries of a schedule must be ascending"
    )
    require(r.schedule.warmup >= 0, f"the warm-up must not be negative, but is {r.schedule.warmup}")
    require(0 <= r.optimizer.momentum < 1, f"momentum must be in [0, 1), not {r.optimizer.momentum}")
    require(
        not r.optimizer.nesterov or r.optimizer.momentum > 0,
        "Nesterov's update needs a momentum above 0: set optimizer.momentum",
    )
    require(r.optimizer.weight_decay >= 0, f"weight decay must not be negative, but is {r.optimizer.weight_decay}")
    require(r.data.crop_padding >= 0, f"crop_padding must not be negative, but is {r.data.crop_padding}")
    require(r.data.prefetch >= 0, f"data.prefetch must not be negative, but is {r.data.prefetch}")
    require(r.evaluation.leaf_batch >= 1, f"evaluation.leaf_batch must be at least 1, not {r.evaluation.leaf_batch}")
    require(
        min(r.evaluation.every_steps, r.evaluation.max_leaves) >= 0, "the numbers of `evaluation` must not be negative"
    )
    require(r.checkpoints.keep >= 1, f"checkpoints.keep must be at least 1, not {r.checkpoints.keep}")
    require(
        min(r.checkpoints.every_steps, r.checkpoints.every_epochs, r.checkpoints.every_seconds) >= 0,
        "the intervals of `checkpoints` must not be negative",
    )


def _nearest_power_of_two(number: int) -> int:
    return 1 << max(0, round(max(1, number)).bit_length() - 1)


def check_workers(recipe: Recipe, workers: int) -> None:
    if workers < 1:
        raise UserError(f"the number of workers must be at least 1, not {workers}")
    if workers > recipe.leaves:
        raise UserError(
            f"{workers} workers cannot share {recipe.leaves} leaves, each needs at least one: take --workers "
            f"{recipe.leaves} or fewer, or more --leaves (another V gives another digest)"
        )
