"""y = 0.1 x + 0.3: a recipe with data, a model, a loss and a metric of one's own, in one file.

    lockstep train examples/linear_regression.py:recipe --workers 2

201 steps, a few seconds: w comes to 0.1 and b to 0.3, with one digest for every number of workers.
"""

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.config import Data, Model, Optimizer, Recipe, Schedule


def points():  # type: ignore[no-untyped-def]
    x = np.random.default_rng(0).uniform(-1, 1, size=(1000, 1))
    y = 0.1 * x + 0.3
    return (x[:900], y[:900]), (x[900:], y[900:])  # a training set and a test set


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(outputs, targets)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.abs(outputs - targets).flatten()  # a value for each example


def recipe() -> Recipe:
    return Recipe(
        name="linear-regression",
        data=Data(source="linear_regression.py:points"),
        model=Model(name="torch.nn:Linear", options={"in_features": 1, "out_features": 1}),
        loss="linear_regression.py:loss",
        metric="linear_regression.py:absolute_error",
        better="lower",
        optimizer=Optimizer(momentum=0.0, weight_decay=0.0),
        schedule=Schedule(lr=0.2),
        global_batch=100,
        leaves=4,
        steps=201,
    )
