"""The recipes that are measured, for `lockstep train bench/recipes.py:NAME`; the peers train the same ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule

_MODELS = Path(__file__).resolve().with_name("models.py")


def resnet20() -> Recipe:
    """ResNet-20, batch 128, random images, 4 leaves of 32; `--leaves 8` for leaves of 16.

    lockstep train bench/recipes.py:resnet20 --data synthetic --workers 2 --steps 50

    Speed is all that it is for: the labels mean nothing, and one piece of the test set is evaluated at the end.
    """
    return Recipe(
        name="bench-resnet20",
        data=Data(source="synthetic"),
        model=Model(name="resnet-cifar", options={"depth": 20}),
        optimizer=Optimizer(momentum=0.9, weight_decay=1e-4),
        schedule=Schedule(lr=0.01),
        global_batch=128,
        leaves=4,
        steps=50,
        evaluation=Evaluation(leaf_batch=32, max_leaves=1),
        checkpoints=Checkpoints(every_seconds=0.0),
    )


def resnet20_small() -> Recipe:
    """ResNet-20, batch 32, random images, 4 leaves of 8: steps so short that many kills fit into a few minutes.

    lockstep train bench/recipes.py:resnet20_small --data synthetic --workers 4 --steps 50
    """
    return replace(resnet20(), name="bench-resnet20-small", global_batch=32)


def dense60m() -> Recipe:
    """A dense network of 60 million parameters, batch 128, 4 leaves: little to compute, 240 MB to exchange.

    lockstep train bench/recipes.py:dense60m --data synthetic --workers 2 --steps 5
    """
    return Recipe(
        name="bench-dense60m",
        data=Data(source="synthetic"),
        model=Model(name=f"{_MODELS}:dense60m"),
        optimizer=Optimizer(momentum=0.9, weight_decay=1e-4),
        schedule=Schedule(lr=0.001),
        global_batch=128,
        leaves=4,
        steps=5,
        evaluation=Evaluation(leaf_batch=32, max_leaves=1),
        checkpoints=Checkpoints(every_seconds=0.0),
    )


def tutorial_resnet18() -> Recipe:
    """The ResNet-18 for CIFAR-10 of common tutorials, with their settings: batch 128, SGD 0.1, cosine over 200 epochs.

    lockstep train bench/recipes.py:tutorial_resnet18 --data DIR --workers 2
    """
    return Recipe(
        name="bench-tutorial-resnet18",
        data=Data(source="cifar10", crop_padding=4, flip=True, standardize="channel"),
        model=Model(name="resnet", options={"depth": 18, "stem": "cifar"}),
        optimizer=Optimizer(momentum=0.9, weight_decay=5e-4),
        schedule=Schedule(name="cosine", lr=0.1),
        global_batch=128,
        leaves=4,
        epochs=200,
        evaluation=Evaluation(every_steps=391, leaf_batch=250),
    )
