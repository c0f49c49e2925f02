"""Optimizers by name, their learning rate, and their state as named tensors."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config import Optimizer
from lockstep.errors import UserError


def build(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = _eager(torch.optim.SGD)(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=0.0,  # set before every step: a pure function of the step, so no state to resume wrongly
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True,
    )
    return optimizer


@functools.cache
def _eager(kind: type[torch.optim.Optimizer]) -> Any:
    """The optimizer without the decorators by which it keeps the compiler out of its methods: they import the compiler
    to do so, which costs every worker 1.5 s of its start. Nothing here is compiled, so there is nothing to keep out."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def named_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors as `<parameter>/<slot>`; empty before the first step."""
    state = {}
    for name, parameter in model.named_parameters():
        for slot, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                state[f"{name}/{slot}"] = value
            elif value is not None:
                raise UserError(f"the optimizer keeps {slot!r} as {type(value).__name__}: only tensors can be resumed")
    return state


def load_state(optimizer: torch.optim.Optimizer, model: nn.Module, state: dict[str, Tensor]) -> None:
    optimizer.state.clear()
    parameters = dict(model.named_parameters())
    for key, value in state.items():
        name, _, slot = key.rpartition("/")
        parameter = parameters[name]
        copy = torch.empty_like(parameter) if value.shape == parameter.shape else torch.empty_like(value)
        optimizer.state[parameter][slot] = copy.copy_(value)
