"""Which keys of `schedule` and `optimizer` mean something to some of their names alone: to ask another one for them is
refused, where it would train as if nothing had been said. Those of `data` are in `lockstep.data.keys`."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.config import Recipe
from lockstep.errors import UserError

TAKERS = {
    "schedule.boundaries": ("step",),
    "schedule.factors": ("step",),
    "schedule.final": ("cosine", "triangular"),
    "schedule.peak": ("triangular",),
    "optimizer.momentum": ("sgd", "muon"),
    "optimizer.nesterov": ("sgd",),
    "optimizer.betas": ("adamw",),
    "optimizer.epsilon": ("adamw",),
}
"""Who takes a key; all others are for everyone."""


def check_asked(recipe: Recipe, asked: Iterable[str]) -> None:
    """Refuse keys that were asked for and mean nothing here. What a recipe says is not asked for: it may be trained
    with another schedule or optimizer than its own."""
    for key in sorted(TAKERS.keys() & set(asked)):
        group, _, field = key.partition(".")
        part, takers = getattr(recipe, group), TAKERS[key]
        value = getattr(part, field)
        is_off = value is False or value == ()
        if part.name not in takers and not is_off:
            raise UserError(f"{key} is for the {group} {' or '.join(takers)}, and not for {part.name}: leave it out")
