"""Keys that some schedules and optimizers alone take: whoever asks another one for them is told so."""

from __future__ import annotations

import pytest

from lockstep.config import Optimizer, Schedule
from lockstep.errors import UserError
from lockstep.request import Request, find_recipe, resolve
from lockstep.takers import TAKERS


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["schedule.boundaries=[0.5]", "schedule.factors=[0.1]"],
            "^schedule.boundaries is for the schedule step, and not for cosine: leave it out$",
        ),
        (["schedule.peak=0.5"], "^schedule.peak is for the schedule triangular, and not for cosine"),
        (
            ["schedule.name=constant", "schedule.final=0.1"],
            "^schedule.final is for the schedule cosine or triangular, and not for constant",
        ),
        (["optimizer.name=adamw", "optimizer.momentum=0.9"], "^optimizer.momentum is for the optimizer sgd or muon"),
        (["optimizer.name=adamw", "optimizer.nesterov=true"], "^optimizer.nesterov is for the optimizer sgd, and not"),
        (["optimizer.name=muon", "optimizer.nesterov=true"], "^optimizer.nesterov is for the optimizer sgd, and not"),
        ([" optimizer.betas = [0.9, 0.95]"], "^optimizer.betas is for the optimizer adamw, and not for sgd: leave"),
        (["optimizer.epsilon=1e-6"], "^optimizer.epsilon is for the optimizer adamw, and not for sgd: leave it out$"),
    ],
)
def test_what_means_nothing_to_this_schedule_or_optimizer_is_refused(settings: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve(find_recipe("demo"), Request(settings=settings))


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("demo", ["optimizer.name=adamw"]),  # whose recipe has a momentum, and Nesterov's
        ("demo", ["optimizer.name=adamw", "optimizer.betas=[0.9, 0.95]", "optimizer.epsilon=1e-6"]),
        ("demo", ["optimizer.name=muon", "optimizer.momentum=0.8"]),
        ("demo", ["optimizer.name=adamw", "optimizer.nesterov=false"]),  # none is what it has
        ("demo", ["schedule.final=0.1"]),
        ("resnet20-cifar10", ["schedule.name=cosine"]),  # whose recipe has boundaries
        ("resnet20-cifar10", ["schedule.name=cosine", "schedule.boundaries=[]", "schedule.factors=[]"]),
        ("fast-cifar10", ["schedule.name=constant"]),  # whose recipe has a peak
    ],
)
def test_what_a_recipe_says_is_not_asked_for(recipe: str, settings: list[str]) -> None:
    resolve(find_recipe(recipe), Request(data="shapes", settings=settings))


def test_the_table_names_keys_that_there_are() -> None:
    groups = {"schedule": vars(Schedule()), "optimizer": vars(Optimizer())}
    for key in TAKERS:
        group, _, field = key.partition(".")
        assert field in groups[group]
