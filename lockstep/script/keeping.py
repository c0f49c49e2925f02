"""What a script must go on from besides model and optimizer, as named tensors: schedulers, averages, counters.

An object is what its `state_dict` says, a dict is itself. Numbers, text, lists and dicts are written as JSON, which
becomes a tensor of bytes under the object's name; tensors inside them stand beside it under a number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.errors import UserError

GROUPS = "optimizer"
"""The name under which the settings of the optimizer's groups are kept: schedulers change them."""


def check(name: str, kept: Any) -> None:
    if name in ("model", GROUPS):
        raise UserError(f"{name} is kept already: name it once")
    if not isinstance(kept, dict) and not (hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict")):
        raise UserError(
            f"{name} cannot be kept: give a dict that the script changes in place, or an object with state_dict and "
            f"load_state_dict, and not {type(kept).__name__}"
        )


def pack(kept: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The present state of all of it."""
    states = {name: one if isinstance(one, dict) else one.state_dict() for name, one in kept.items()}
    named: dict[str, Tensor] = {}
    for name, state in {GROUPS: _groups(optimizer), **states}.items():
        tensors: list[Tensor] = []
        text = json.dumps(_plain(state, tensors, name))
        named[name] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        named |= {f"{name}/{number}": tensor for number, tensor in enumerate(tensors)}
    return named


def unpack(named: Mapping[str, Tensor], kept: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Go on from a state that `pack` has made."""
    for group, settings in zip(optimizer.param_groups, _state(named, GROUPS), strict=True):
        group.update(settings)
    for name, one in kept.items():
        state = _state(named, name)
        if isinstance(one, dict):
            one.clear()
            one.update(state)
        else:
            one.load_state_dict(state)


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def _state(named: Mapping[str, Tensor], name: str) -> Any:
    if name not in named:
        raise UserError(f"the checkpoint has nothing of {name}: the script names more to keep than when the run began")
    text = named[name].numpy().tobytes().decode()
    return _original(json.loads(text), lambda number: named[f"{name}/{number}"].clone())


def _plain(value: Any, tensors: list[Tensor], name: str) -> Any:
    """As JSON has it: what is no number or text becomes an object with one key, which says what it was."""

    def inner(items: Any) -> list[Any]:
        return [_plain(item, tensors, name) for item in items]

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor | np.ndarray):
        tensors.append(torch.as_tensor(value).detach())
        return {"tensor" if isinstance(value, Tensor) else "array": len(tensors) - 1}
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [inner(pair) for pair in value.items()]}
    if isinstance(value, list | tuple):
        return inner(value) if isinstance(value, list) else {"tuple": inner(value)}
    raise UserError(
        f"{name} keeps a {type(value).__name__}: only numbers, text, lists, dicts, arrays and tensors can be kept"
    )


def _original(plain: Any, tensor: Callable[[int], Tensor]) -> Any:
    if isinstance(plain, list):
        return [_original(item, tensor) for item in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind in ("tensor", "array"):
        return tensor(content) if kind == "tensor" else tensor(content).numpy()
    items = [_original(item, tensor) for item in content]
    if kind == "tuple":
        return tuple(items)
    return Counter(dict(items)) if kind == "counter" else dict(items)
