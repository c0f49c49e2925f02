"""The learning rate as a pure function of the step: right on the first step and after a resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from lockstep.config import Schedule
from lockstep.scaling import exact

LearningRate = Callable[[int], float]


def learning_rate(schedule: Schedule, num_steps: int, steps_per_epoch: float | Fraction) -> LearningRate:
    """The function from step to learning rate; boundaries are turned into steps once, here.

    `num_steps` is the whole length of the recipe, also where training ends earlier.
    """
    units = {"steps": Fraction(1), "epochs": Fraction(steps_per_epoch), "fraction": Fraction(num_steps)}
    unit = units[schedule.unit]
    warmup = schedule.warmup * float(units[schedule.warmup_unit or schedule.unit])
    boundaries = [math.ceil(exact(boundary) * unit) for boundary in schedule.boundaries]
    peak = float(exact(schedule.peak) * unit)

    def warmed(step: int) -> float:
        if step >= warmup:
            return 1.0
        return _line(schedule.warmup_from, 1.0, step, warmup)

    def constant(step: int) -> float:
        return 1.0

    def stepwise(step: int) -> float:
        passed = sum(step >= boundary for boundary in boundaries)
        return 1.0 if passed == 0 else schedule.factors[passed - 1]

    def cosine(step: int) -> float:
        done = min(1.0, max(0.0, step - warmup) / max(1.0, num_steps - warmup))
        return schedule.final + (1.0 - schedule.final) * 0.5 * (1.0 + math.cos(math.pi * done))

    def triangular(step: int) -> float:
        if step < peak:
            return _line(schedule.warmup_from, 1.0, step, peak)
        return _line(1.0, schedule.final, min(step, num_steps) - peak, max(1.0, num_steps - peak))

    shape = {"constant": constant, "step": stepwise, "cosine": cosine, "triangular": triangular}[schedule.name]
    return lambda step: schedule.lr * warmed(step) * shape(step)


def _line(start: float, end: float, position: float, length: float) -> float:
    return start + (end - start) * position / length
