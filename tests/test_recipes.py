"""The built-in recipes: all of them resolve, say how to run them, and have the published settings and schedules."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction
from functools import reduce
from typing import Any

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
    """He et al. 2015, 4.2: 0.01 until the training error is below 80 %, about 400 steps."""
    rate = rate_of("resnet110-cifar10")
    assert [rate(step) for step in (0, 399, 400, 31_999, 32_000, 47_999, 48_000, 63_999)] == pytest.approx(
        [0.01, 0.01, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


@pytest.mark.parametrize("name", ["resnet20-cifar10", "resnet56-cifar10"])
def test_the_steps_of_the_resnets(name: str) -> None:
    """He et al. 2015, 4.2: 0.1, divided by 10 at 32k and 48k steps, 64k in all."""
    rate = rate_of(name)
    assert [rate(step) for step in (0, 31_999, 32_000, 47_999, 48_000, 63_999)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


@pytest.mark.parametrize("name", ["wrn28-10-cifar10", "wrn28-10-cifar100"])
def test_the_epochs_of_the_wide_resnets(name: str) -> None:
    """Zagoruyko and Komodakis 2016, 3: 0.1, times 0.2 at epochs 60, 120 and 160."""
    rate = rate_of(name)
    epochs = {0: 0.1, 59: 0.1, 60: 0.02, 119: 0.02, 120: 0.004, 159: 0.004, 160: 0.0008, 199: 0.0008}
    assert {epoch: rate(round(epoch * 390.625) + 1) for epoch in epochs} == pytest.approx(epochs)


def test_the_modern_schedule_for_imagenet() -> None:
    """Five epochs from 0 to 2.0, then a cosine to 0; an epoch of ImageNet's 1,281,167 images has 1251 steps."""
    recipe = RECIPES["imagenet-resnet50-modern"]()
    rate = learning_rate(recipe.schedule, 100 * 1251, 1251)
    assert [rate(epoch * 1251) for epoch in (0, 1, 5, 100)] == pytest.approx([0.0, 0.4, 2.0, 0.0])
    assert rate(round(52.5 * 1251)) == pytest.approx(1.0, abs=1e-3)


# What a recipe does not name below, it does not do.
NOTHING: dict[str, Any] = {
    "data.shift": 0.0,
    "data.policy": "none",
    "data.cutout": 0,
    "data.erase": 0.0,
    "data.mixup": 0.0,
    "data.cutmix": 0.0,
    "data.sizes": (),
    "data.hold_out": 0,
    "data.pad_mode": "zero",
    "data.flip": True,
    "optimizer.name": "sgd",
    "optimizer.momentum": 0.9,
    "optimizer.nesterov": False,
    "optimizer.decay": "all",
    "optimizer.groups": (),
    "optimizer.clip_norm": 0.0,
    "optimizer.momentum_correction": True,
    "label_smoothing": 0.0,
    "average": 0.0,
    "scale": 1.0,
    "precision": "fp32",
    "loss": "cross-entropy",
    "steps": None,
    "epochs": None,
    "schedule.with_scale": "rate",
    "evaluation.views": "one",
}
CIFAR: dict[str, Any] = {**NOTHING, "data.source": "cifar10", "global_batch": 128}
# He et al. 2015, 4.2: batch 128, 64k steps, decay 0.0001, momentum 0.9, 4 pixels of padding, flips.
HE = {
    **CIFAR,
    "model.name": "resnet-cifar",
    "optimizer.weight_decay": 1e-4,
    "steps": 64_000,
    "data.crop_padding": 4,
    "schedule.name": "step",
    "schedule.unit": "steps",
}
# Zagoruyko and Komodakis 2016, 3: batch 128, 200 epochs, decay 0.0005, Nesterov, channels by mean and deviation.
ZAGORUYKO = {
    **CIFAR,
    "model.name": "wide-resnet",
    "model.options": {"depth": 28, "width": 10},
    "data.crop_padding": 4,
    "optimizer.nesterov": True,
    "optimizer.weight_decay": 5e-4,
    "epochs": 200,
    "data.standardize": "channel",
}
# R: padding of 2, images by their own deviation, decay of kernels alone, boundaries that follow the number of workers.
RAY = {
    **CIFAR,
    "model.name": "resnet-ray",
    "model.options": {},
    "data.crop_padding": 2,
    "data.standardize": "image",
    "optimizer.weight_decay": 2e-4,
    "optimizer.decay": "kernels",
    "steps": 90_000,
    "schedule.with_scale": "boundaries",
}
# P and the modern one: images by the channels of ImageNet, batches of 1024.
IMAGENET = {
    **NOTHING,
    "data.source": "imagenet",
    "data.side": 224,
    "data.crop_padding": 0,
    "data.standardize": "channel",
    "data.mean": (123.675, 116.28, 103.53),
    "data.deviation": (58.395, 57.12, 57.375),
    "model.name": "resnet",
    "global_batch": 1024,
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "resnet20-cifar10": {**HE, "model.options": {"depth": 20}},
    "resnet56-cifar10": {**HE, "model.options": {"depth": 56}},
    "resnet110-cifar10": {**HE, "model.options": {"depth": 110}},
    "wrn28-10-cifar10": ZAGORUYKO,
    "wrn28-10-cifar100": {**ZAGORUYKO, "data.source": "cifar100", "data.labels": "fine"},
    "resnet32-ray-cifar10": RAY,
    "resnet32-ray-cifar100": {**RAY, "data.source": "cifar100", "data.labels": "fine"},
    # P: 50 layers with pre-activation, a projection wherever the shape changes, decay of everything.
    "resnet50-6n2-cifar10": {
        **CIFAR,
        "model.name": "resnet-cifar",
        "data.crop_padding": 4,
        "data.standardize": "image",
        "model.options": {"depth": 50, "version": 2, "shortcut": "projection-each-stage"},
        "optimizer.weight_decay": 2e-4,
        "steps": 90_000,
    },
    # H: shifts of up to 20 % and flips, 40 epochs; the rate follows the number of workers.
    "resnet50-horovod-cifar10": {
        **CIFAR,
        "model.name": "resnet",
        "model.options": {"depth": 50, "stem": "cifar"},
        "data.crop_padding": 0,
        "data.shift": 0.2,
        "data.standardize": "channel",
        "epochs": 40,
        "schedule.scale_warmup": 5.0,
        "optimizer.weight_decay": 2e-6,
        "optimizer.decay": "kernels",
    },
    # P: the short side 256 to 512 pixels at random, 90 epochs of 1248 steps.
    "imagenet-resnet50": {
        **IMAGENET,
        "model.options": {"depth": 50},
        "data.framing": "short-side",
        "data.resize": (256, 512),
        "optimizer.weight_decay": 1e-4,
        "steps": 112_320,
    },
    # Random-resized crops, mixup, label smoothing, a moving average, no decay of biases and norms, zeroed last norms.
    "imagenet-resnet50-modern": {
        **IMAGENET,
        "model.options": {"depth": 50, "zero_init": True},
        "data.framing": "random-resized",
        "data.mixup": 0.2,
        "label_smoothing": 0.1,
        "average": 0.9999,
        "epochs": 100,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 5e-5,
        "optimizer.decay": "kernels",
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_settings_of_its_source(name: str) -> None:
    recipe = RECIPES[name]()
    assert {key: reduce(getattr, key.split("."), recipe) for key in PUBLISHED[name]} == PUBLISHED[name]


def test_every_recipe_that_follows_others_is_compared_with_them() -> None:
    assert RECIPES.keys() - PUBLISHED.keys() == {"demo", "fast-cifar10", "alexnet-imagenet"}
