"""Optimizers by name, what is done around their step (clipping, learning rate, momentum), and their state as tensors.

An optimizer is an entry of `OPTIMIZERS`: a function from the configuration and the model to a torch optimizer whose
state is tensors. A group of parameters may have a learning rate of its own: `lr_factor` times that of the schedule.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config import Optimizer
from lockstep.errors import UserError, unknown
from lockstep.muon import Muon
from lockstep.schedule import LearningRate

Group = dict[str, Any]


def build(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.name](config, model)


def groups(config: Optimizer, model: nn.Module) -> list[Group]:
    """The parameters that are trained, those with the same settings together."""
    together: dict[tuple[tuple[str, Any], ...], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            together.setdefault(tuple(settings_of(config, name, parameter).items()), []).append(parameter)
    _refuse_unmatched(config, model)
    return [{"params": parameters, **dict(settings)} for settings, parameters in together.items()]


def settings_of(config: Optimizer, name: str, parameter: Tensor) -> dict[str, Any]:
    """What a parameter is trained with, where its group or its shape says something else than the rest."""
    decays = config.decay == "all" or parameter.dim() >= 2
    settings: dict[str, Any] = {"weight_decay": config.weight_decay if decays else 0.0}
    own = next((group for group in config.groups if fnmatchcase(name, group.match)), None)
    if own is not None:
        given = {"lr_factor": own.lr, "weight_decay": own.weight_decay, "momentum": own.momentum}
        settings |= {key: value for key, value in given.items() if value is not None}
    if own is not None and own.orthogonal and parameter.dim() < 2:
        raise UserError(f"{name} has one dimension, so its update cannot be orthogonal: leave it out of {own.match!r}")
    if config.name == "muon":
        settings["orthogonal"] = parameter.dim() >= 2 if own is None or own.orthogonal is None else own.orthogonal
    return settings


def _refuse_unmatched(config: Optimizer, model: nn.Module) -> None:
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    for group in config.groups:
        if not any(fnmatchcase(name, group.match) for name in names):
            raise unknown("group of parameters", group.match, names)


def sgd(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = _eager(torch.optim.SGD)(
        groups(config, model),
        lr=0.0,  # set before every step: a pure function of the step, so no state to resume wrongly
        momentum=config.momentum,
        nesterov=config.nesterov,
        fused=True,
    )
    return optimizer


def adamw(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = _eager(torch.optim.AdamW)(
        groups(config, model), lr=0.0, betas=config.betas, eps=config.epsilon, fused=True
    )
    return optimizer


def muon(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    return _eager(Muon)(groups(config, model), momentum=config.momentum)  # type: ignore[no-any-return]


OPTIMIZERS: dict[str, Callable[[Optimizer, nn.Module], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "adamw": adamw,
    "muon": muon,
}
NUM_SLOTS = {"sgd": 1, "adamw": 2, "muon": 1}
"""Numbers that an optimizer keeps for every weight."""


@functools.cache
def _eager(kind: type[torch.optim.Optimizer]) -> Any:
    """The optimizer without the decorators by which it keeps the compiler out of its methods: they import the compiler
    to do so, which costs every worker 1.5 s of its start. Nothing here is compiled, so there is nothing to keep out."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def update(optimizer: torch.optim.Optimizer, config: Optimizer, rate: LearningRate, step: int) -> None:
    """One step of the optimizer, with everything around it a function of the number of the step."""
    if not config.momentum_correction:
        scale_momentum(optimizer, uncorrected_factor(rate, step))
    set_learning_rate(optimizer, rate(step))
    optimizer.step()


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_factor", 1.0)


def uncorrected_factor(rate: LearningRate, step: int) -> float:
    """What the momentum is multiplied by before a step so that it is that of an optimizer without the correction.

    Such an optimizer, as Keras has it, keeps v = momentum * v + rate * gradient and subtracts v. Ours keeps u without
    the rate and subtracts rate * u, which is Goyal's corrected form: v / rate. When the rate changes from a to b, v
    stays, so u becomes u * a / b.
    """
    return rate(step - 1) / rate(step) if step > 0 and rate(step) > 0 else 1.0


def scale_momentum(optimizer: torch.optim.Optimizer, factor: float) -> None:
    buffers = [state["momentum_buffer"] for state in optimizer.state.values() if "momentum_buffer" in state]
    if buffers and factor != 1.0:
        torch._foreach_mul_(buffers, factor)


def clip_factor(gradients: Tensor, clip_norm: float) -> float:
    """By how much gradients are multiplied to have at most this Euclidean norm, over the whole flat vector; at most 1.

    The sum is in float64: in float32 the squares of a large model would get lost in it.
    """
    norm = torch.linalg.vector_norm(gradients, dtype=torch.float64).item()
    return min(1.0, clip_norm / norm) if norm > 0 else 1.0


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
        is_alike = value.shape == parameter.shape
        copy = torch.empty_like(parameter if is_alike else value, device=parameter.device)
        optimizer.state[parameter][slot] = copy.copy_(value)
