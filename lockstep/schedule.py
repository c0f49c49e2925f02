"""The learning rate as a pure function of the step: right on the first step and after a resume."""

from __future__ import annotations

import math
from collections.abc import Callable

from lockstep.config import Schedule

LearningRate = Callable[[int], float]


def learning_rate(schedule: Schedule, num_steps: int, steps_per_epoch: float) -> LearningRate:
    """The function from step to learning rate; boundaries are turned into steps once, here."""
    unit = {"steps": 1.0, "epochs": steps_per_epoch, "fraction": float(num_steps)}[schedule.unit]
    warmup = schedule.warmup * unit
    boundaries = [math.ceil(boundary * unit) for boundary in schedule.boundaries]

    def warmed(step: int) -> float:
        if step >= warmup:
            return 1.0
        return schedule.warmup_from + (1.0 - schedule.warmup_from) * step / warmup

    def constant(step: int) -> float:
        return 1.0

    def stepwise(step: int) -> float:
        passed = sum(step >= boundary for boundary in boundaries)
        return 1.0 if passed == 0 else schedule.factors[passed - 1]

    def cosine(step: int) -> float:
        done = min(1.0, max(0.0, step - warmup) / max(1.0, num_steps - warmup))
        return schedule.final + (1.0 - schedule.final) * 0.5 * (1.0 + math.cos(math.pi * done))

    shape = {"constant": constant, "step": stepwise, "cosine": cosine}[schedule.name]
    return lambda step: schedule.lr * warmed(step) * shape(step)
