"""What a recipe's `scale` does: a pure function from the recipe that was asked for to the one that is trained.

"As if `scale` Horovod workers took part": the batch grows, the steps become fewer, and the learning rate follows. V
stays, so the leaves grow. The configuration keeps what was asked for; training sees only what `scaled` returns.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from lockstep.config import Recipe, Schedule
from lockstep.errors import UserError


def scaled(recipe: Recipe) -> Recipe:
    """The recipe that is trained: the same without a scale, or with its scale worked in and 1 in its place."""
    if recipe.scale == 1:
        return recipe
    scale = exact(recipe.scale)
    by_rate = recipe.schedule.with_scale == "rate"
    divisor = float(scale) if by_rate else math.sqrt(scale)
    schedule = _in_fewer_steps(recipe.schedule, divisor)
    return replace(
        recipe,
        scale=1.0,
        global_batch=_batch(recipe, scale),
        steps=None if recipe.steps is None else math.ceil(_divided(recipe.steps, divisor)),
        schedule=_at_higher_rate(schedule, recipe.scale) if by_rate else schedule,
    )


def _batch(recipe: Recipe, scale: Fraction) -> int:
    batch = recipe.global_batch * scale
    if batch.denominator != 1 or batch < 1 or batch % recipe.leaves != 0:
        raise UserError(
            f"a batch of {recipe.global_batch} times the scale {recipe.scale:g} is {float(batch):g}, which cannot be "
            f"cut into {recipe.leaves} equal leaves: take another --scale, --batch-size or --leaves"
        )
    return int(batch)


def _in_fewer_steps(schedule: Schedule, divisor: float) -> Schedule:
    """Whatever is counted in steps comes earlier; epochs and fractions have fewer steps by themselves."""
    changes: dict[str, Any] = {}
    if schedule.unit == "steps":
        changes["boundaries"] = tuple(_divided(boundary, divisor) for boundary in schedule.boundaries)
        changes["peak"] = _divided(schedule.peak, divisor)
    if (schedule.warmup_unit or schedule.unit) == "steps":
        changes["warmup"] = _divided(schedule.warmup, divisor)
    return replace(schedule, **changes)


def _at_higher_rate(schedule: Schedule, scale: float) -> Schedule:
    """The rate times the scale. Above 1 it is warmed up to, from the single-worker rate; a triangle rises anyway."""
    schedule = replace(schedule, lr=float(exact(schedule.lr) * exact(scale)))
    if scale < 1 or schedule.name == "triangular":
        return schedule
    if schedule.warmup == 0:
        schedule = replace(schedule, warmup=schedule.scale_warmup, warmup_unit="epochs")
    return replace(schedule, warmup_from=1.0 / scale)


def _divided(number: float, divisor: float) -> float:
    return float(exact(number) / exact(divisor))


def exact(number: float) -> Fraction:
    """What was written, 0.1 being a tenth."""
    return Fraction(str(number))
