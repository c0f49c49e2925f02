"""Training inside the test's own process, without a supervisor: the same loop objects, for quick tests."""

from __future__ import annotations

from dataclasses import replace

from lockstep import strategies
from lockstep.config import Job, Recipe
from lockstep.data import open_dataset
from lockstep.device import Device
from lockstep.membership import Membership
from lockstep.recipes.demo import demo
from lockstep.replica import Replica
from lockstep.state import State
from lockstep.step import Step
from lockstep.strategies.synchronous import Synchronous


def tiny_recipe(**changes: object) -> Recipe:
    """The demo with 4 leaves of 4 images."""
    return replace(demo(), leaves=4, global_batch=16, epochs=None, steps=3, **changes)  # type: ignore[arg-type]


def set_up(recipe: Recipe, job: Job | None = None) -> tuple[Replica, Synchronous, Step]:
    dataset = open_dataset(recipe.data, recipe.seed)
    assert recipe.steps is not None
    replica = Replica(recipe, dataset, recipe.steps, Device(recipe.device, recipe.threads, recipe.precision))
    membership = Membership.alone(recipe.leaves)
    strategy = strategies.build(job or Job(workers=1), recipe, dataset.train, replica, membership)
    return replica, strategy, strategy.first_step(0)


def train(
    recipe: Recipe, job: Job | None = None, *, first: int = 0, last: int | None = None, state: State | None = None
) -> Replica:
    """The whole recipe, or some of its steps from a state on."""
    replica, strategy, step = set_up(recipe, job)
    if state is not None:
        replica.load(state)
        step.restart(first)
    while step.index < (last or recipe.steps or 0):
        while not step.done:
            for leaf in step.missing():
                step.hold(leaf, strategy.contribution(leaf))
            strategy.exchange(step)
        strategy.apply(step)
        step = step.next()
    strategy.close()
    return replica
