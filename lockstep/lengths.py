"""The length of a run, which its schedule may follow, when a session goes on with another one. Pure.

The `start` rows of `metrics.jsonl` have it as `num_steps`, session by session.
"""

from __future__ import annotations

from fractions import Fraction

from lockstep.config import Recipe, Schedule
from lockstep.rows import Row
from lockstep.schedule import learning_rate

Course = tuple[tuple[int, int | None], ...]
"""The lengths that a run had, each with the step from which on; None where an older version has not recorded it."""


def course(rows: list[Row]) -> Course:
    """What came after the step from which a session goes on is done again."""
    found: list[tuple[int, int | None]] = []
    for row in rows:
        if row.get("kind") == "start":
            found = [one for one in found if one[0] < row["step"]]
            found.append((row["step"], row.get("num_steps")))
    return tuple(
        one for index, one in enumerate(found) if index == 0 or one[1] is None or one[1] != found[index - 1][1]
    )


def is_followed(recipe: Recipe) -> bool:
    """Whether what a step computes may depend on how many there are to be."""
    return recipe.script is None and (_follows(recipe.schedule) or bool(recipe.data.sizes))


def _follows(schedule: Schedule) -> bool:
    if schedule.name in ("cosine", "triangular"):
        return True
    has_boundaries = schedule.name == "step" and bool(schedule.boundaries)
    units = {schedule.unit} if has_boundaries else set()
    return "fraction" in (units | {schedule.warmup_unit or schedule.unit} if schedule.warmup else units)


def describe_change(recipe: Recipe, before: int, now: int, done: int, num_samples: int) -> str | None:
    """What to say of a run of `before` steps that goes on, after `done`, as one of `now`: nothing where the steps that
    are done would have been the same. The scale of the recipe is worked in."""
    if before == now or not is_followed(recipe):
        return None
    per_epoch = Fraction(num_samples, recipe.global_batch)
    rates = [learning_rate(recipe.schedule, length, per_epoch) for length in (before, now)]
    if all(rates[0](step) == rates[1](step) and _is_same_size(recipe, before, now, step) for step in range(done)):
        return None
    return (
        f"the {done} steps so far were those of a run of {before}, whose schedule follows its length: the result is "
        f"not that of a run of {now} steps from the start"
    )


def _is_same_size(recipe: Recipe, before: int, now: int, step: int) -> bool:
    return all((step / before < until) == (step / now < until) for until, _ in recipe.data.sizes)
