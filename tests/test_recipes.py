"""The built-in recipes: all of them resolve, say how to run them, and have the published schedules."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction

import pytest

from lockstep import cli
from lockstep.recipes import RECIPES
from lockstep.report.recipes import summary
from lockstep.request import Request, find_recipe, resolve
from lockstep.scaling import scaled
from lockstep.schedule import LearningRate, learning_rate

TRAIN_SIZE = 50_000


def rate_of(name: str, scale: float = 1.0) -> LearningRate:
    recipe = scaled(resolve(find_recipe(name), Request(data="synthetic", scale=scale)))
    steps_per_epoch = Fraction(TRAIN_SIZE, recipe.global_batch)
    num_steps = recipe.steps or round(float(recipe.epochs or 0) * float(steps_per_epoch))
    return learning_rate(recipe.schedule, num_steps, steps_per_epoch)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_resolves(name: str) -> None:
    recipe = resolve(find_recipe(name), Request())
    assert recipe.name == name
    assert recipe.leaf_batch >= 32


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_documents_command_cost_and_accuracy(name: str) -> None:
    documentation = RECIPES[name].__doc__ or ""
    assert summary(RECIPES[name]).endswith("."), "its first line, which `lockstep recipes` shows, is no sentence"
    (command,) = re.findall(r"^ +lockstep (train .*)$", documentation, re.MULTILINE)
    assert cli.parser().parse_args(shlex.split(command)).recipe == name
    assert re.search(r"% top1", documentation)
    assert re.search(r"minute|hour|For GPUs", documentation)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.1), (39_999, 0.1), (40_000, 0.01), (59_999, 0.01), (60_000, 0.001), (79_999, 0.001), (80_000, 0.0001)],
)
@pytest.mark.parametrize("name", ["resnet50-6n2-cifar10", "resnet32-ray-cifar10"])
def test_the_steps_of_two_earlier_systems(name: str, step: int, rate: float) -> None:
    """F38."""
    assert rate_of(name)(step) == pytest.approx(rate)


def test_the_ray_example_has_its_boundaries_divided_by_the_root_of_the_scale() -> None:
    """F38: with four workers 0.1 held until 20,000."""
    rate = rate_of("resnet32-ray-cifar10", scale=4)
    assert [rate(step) for step in (0, 19_999, 20_000, 30_000, 40_000)] == pytest.approx([0.1, 0.1, 0.01, 1e-3, 1e-4])


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.1), (3120, 0.25), (6240, 0.4), (37_439, 0.4), (37_440, 0.04), (74_880, 0.004), (99_840, 0.0004)],
)
def test_the_ramp_for_imagenet(step: int, rate: float) -> None:
    """F39."""
    assert rate_of("imagenet-resnet50")(step) == pytest.approx(rate)


def test_the_epochs_of_the_horovod_tutorial() -> None:
    """F40, and F41 and F62 with a scale of 4: an epoch has 97.7 steps, the rate rises from 0.01 to 0.04 in five."""
    rate = rate_of("resnet50-horovod-cifar10")
    assert [rate(round(epoch * 390.625) + 1) for epoch in (0, 14, 15, 25, 35)] == pytest.approx(
        [0.01, 0.01, 0.001, 1e-4, 1e-5]
    )
    rate = rate_of("resnet50-horovod-cifar10", scale=4)
    assert rate(0) == pytest.approx(0.01)
    assert rate(489) == pytest.approx(0.04)
    assert rate(244) == pytest.approx(0.025, rel=0.01)
    assert rate(round(15 * 97.65625) + 1) == pytest.approx(0.004)


def test_the_deep_resnet_warms_up_at_a_tenth() -> None:
    rate = rate_of("resnet110-cifar10")
    assert [rate(step) for step in (0, 399, 400, 32_000, 48_000)] == pytest.approx([0.01, 0.01, 0.1, 0.01, 0.001])
