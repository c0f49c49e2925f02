"""The built-in recipes: functions that return a configuration. The docstring gives command, cost and expectation."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule


def demo() -> Recipe:
    """A small network on the embedded shapes; ten classes, 32 x 32 pixels.

    lockstep train demo --workers 2

    About half a minute on one core; above 98 % top1.
    """
    return Recipe(
        name="demo",
        data=Data(source="shapes", crop_padding=2, flip=True),
        model=Model(name="small"),
        optimizer=Optimizer(momentum=0.9, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(name="cosine", lr=0.05, warmup=0.1),
        global_batch=128,
        leaves=4,
        epochs=7,
        evaluation=Evaluation(every_steps=100, leaf_batch=250),
    )


def resnet20_cifar10() -> Recipe:
    """ResNet-20 on CIFAR-10 as in He et al. 2015: batch 128, 64,000 steps.

    lockstep train resnet20-cifar10 --data DIR --workers 4

    About 5.5 hours on two cores (0.25 GFLOP per image); 91.25 % top1 in the paper.
    """
    return Recipe(
        name="resnet20-cifar10",
        data=Data(source="cifar10", crop_padding=4, flip=True),
        model=Model(name="resnet-cifar", options={"depth": 20}),
        optimizer=Optimizer(momentum=0.9, weight_decay=1e-4),
        schedule=Schedule(name="step", lr=0.1, unit="steps", boundaries=(32000, 48000), factors=(0.1, 0.01)),
        global_batch=128,
        leaves=4,
        steps=64000,
        evaluation=Evaluation(every_steps=2000, leaf_batch=250),
        checkpoints=Checkpoints(every_steps=2000),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "demo": demo,
    "resnet20-cifar10": resnet20_cifar10,
}
