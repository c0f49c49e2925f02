"""What the outputs of a model are worth: the loss that is trained on, hits among classes, and a metric of the recipe's
own. Loss and metric are functions of the user's, unless the loss is the built-in cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep import calling, mixing, references
from lockstep.config import Recipe
from lockstep.data.mix import Mix
from lockstep.errors import UserError
from lockstep.exchange.flat import NUM_COUNTS
from lockstep.goal import CROSS_ENTROPY, metric_name

NOT_COUNTED = -1.0
"""What stands for a number of hits where there are no classes, or a script does not count them."""


class Objective:
    def __init__(self, recipe: Recipe, num_classes: int | None) -> None:
        self._recipe = recipe
        self._num_classes = num_classes
        self._loss = None if recipe.loss == CROSS_ENTROPY else _load(recipe.loss, "loss")
        self._metric = None if recipe.metric is None else _load(recipe.metric, "metric")
        self.num_counts = NUM_COUNTS + (self._metric is not None)

    def loss(self, outputs: Tensor, targets: Tensor, mix: Mix | None = None) -> Tensor:
        """The mean over the examples of a leaf, in training."""
        if self._loss is None:
            self._check_logits(outputs, targets)
            return mixing.loss(outputs, targets, mix, self._recipe.label_smoothing)
        found = self._loss(outputs, targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise UserError(f"{self._recipe.loss} returned {_kind(found)}, not one number: return the mean as a tensor")
        return found.reshape(())

    def sum_of_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Over the examples of a leaf, in float64, in evaluation."""
        if self._loss is None:
            self._check_logits(outputs, targets)
            return F.cross_entropy(outputs, targets, reduction="none").double().sum()
        return self.loss(outputs, targets).double() * len(targets)

    def _check_logits(self, outputs: Tensor, targets: Tensor) -> None:
        """More than there are classes do no harm."""
        if outputs.dim() != 2 or len(outputs) != len(targets) or outputs.shape[1] < (self._num_classes or 0):
            raise UserError(
                f"{self._recipe.model.name} returned {_kind(outputs)} for {len(targets)} inputs of {self._num_classes} "
                f"classes: return one number for each class, as shape {(len(targets), self._num_classes)}"
            )

    def hits(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor] | None:
        """How many targets are the first guess, and how many among the first five; None where there are no classes, or
        a loss of the user's own takes the outputs for something else."""
        if self._num_classes is None:
            return None
        if self._loss is not None and outputs.shape != (len(targets), self._num_classes):
            return None
        return hits(outputs, targets)

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """The sum of the recipe's own metric over the examples, in float64; None if it has none."""
        if self._metric is None:
            return None
        returned = self._metric(outputs, targets)
        try:
            found = torch.as_tensor(returned)
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"{self._recipe.metric} returned {_kind(returned)}, not numbers: {_OF_METRIC}") from None
        if found.dim() > 1 or (found.dim() == 1 and len(found) != len(targets)):
            raise UserError(f"{self._recipe.metric} returned {_kind(found)} for {len(targets)} examples: {_OF_METRIC}")
        return found.detach().double().sum()

    def sums(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[str, float], ...]:
        """The same under the metric's name, as evaluations add it up."""
        name, found = metric_name(self._recipe), self.metric(outputs, targets)
        return () if name is None or found is None else ((name, float(found)),)

    def take_down(self, counts: Tensor, loss: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """Loss, hits and metric of a leaf, where a vector has them."""
        counts[0].copy_(loss)
        found = self.hits(outputs, targets)
        if found is None:
            counts[1:3].fill_(NOT_COUNTED)
        else:
            counts[1].copy_(found[0])
            counts[2].copy_(found[1])
        if (metric := self.metric(outputs, targets)) is not None:
            counts[3].copy_(metric)


_OF_METRIC = "return a value for each of them, or one number, their sum"


def _load(name: str, kind: str) -> Callable[[Tensor, Tensor], Any]:
    function = references.load(name)
    calling.check_callable(name, function)
    if isinstance(function, type):
        raise UserError(f"{name} is a class: name a function of the outputs and the targets, which a {kind} is")
    calling.check_objective(name, kind, calling.signature(function))
    found: Callable[[Tensor, Tensor], Any] = function
    return found


def _kind(found: object) -> str:
    return f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__


def hits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """How many labels are the first guess, and how many are among the first five."""
    right = _guesses(logits) == labels[:, None]
    return right[:, 0].sum(), right.sum()


def first_guesses(logits: Tensor) -> Tensor:
    """The class that counts as the guess in `hits`, also where several logits are equal."""
    return _guesses(logits)[:, 0]


def _guesses(logits: Tensor) -> Tensor:
    return logits.topk(min(5, logits.shape[1]), dim=1).indices
