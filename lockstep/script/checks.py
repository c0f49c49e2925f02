"""What a script may give to `lockstep.job`, and what it may not, said before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.data.source import in_order
from lockstep.errors import UserError
from lockstep.script.loader import Parts, read


def check_parts(model: Any, optimizer: Any) -> None:
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be a torch.nn.Module, and not {type(model).__name__}")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise UserError(f"give the model itself, without {type(model).__name__}: Lockstep does the sharing")
    if not any(True for _ in model.parameters()):
        raise UserError("the model has no parameters to train")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UserError(f"optimizer must be a torch.optim.Optimizer, and not {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UserError("LBFGS computes the loss several times in a step, which workers cannot share: take another one")
    mine = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in mine for group in optimizer.param_groups for parameter in group["params"]):
        raise UserError("the optimizer has parameters that are not the model's: make it of model.parameters()")


def check_pure(parts: Parts, seed: int) -> None:
    """A sample must be the same whenever and wherever it is read."""
    one, other = (read(parts, seed, in_order(0, 1)) for _ in range(2))
    if not _same(one, other):
        raise UserError(
            "the data set gives another sample 0 every time, so it has a random state of its own: draw from the global "
            "generators of torch, numpy or random, which are seeded for every sample"
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")
    if isinstance(one, dict):
        return all(_same(value, other.get(key)) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return not isinstance(one, int | float | str) or bool(one == other)
