"""Weights, optimizer state and gradients of any PyTorch model as plain data: numpy arrays by name, or one flat vector.

For programs that move weights themselves, as through Ray's object store. Arrays are copies, in C order and in the
memory of the host, and tied weights are there once. What is set is checked as a whole first: an error changes nothing.

Numpy has no bfloat16 and no 8-bit floats: they come as float32, which holds each of them exactly, so there and back is
bit for bit. What is set is converted to the type that the model has, and whole numbers must stay whole.

>>> import torch
>>> from lockstep import weights
>>> model = torch.nn.Linear(2, 1)
>>> found = weights.get(model)
>>> {name: array.shape for name, array in found.items()}
{'weight': (1, 2), 'bias': (1,)}
>>> weights.set(model, {"bias": found["bias"] + 1})
>>> weights.get(model)["bias"] == found["bias"] + 1
array([ True])
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from lockstep.errors import UserError, nearest

__all__ = ["apply_gradients", "flat_size", "get", "get_flat", "get_gradients", "set", "set_flat"]

Weights = dict[str, npt.NDArray[Any]]
Given = Mapping[str, npt.ArrayLike]

OPTIMIZER = "optimizer/"
"""What names of an optimizer's state begin with: `optimizer/<parameter>/<slot>`."""

BLOCK_BYTES = 64 << 20
"""Arrays share memory in blocks of at most so many bytes, which is as much as one of them can keep from being freed."""
ALIGNMENT = 64


def get(model: nn.Module, optimizer: Optimizer | None = None, buffers: bool = False) -> Weights:
    """Every parameter by its name; on request also the state of an optimizer, and buffers such as BatchNorm's
    statistics.

    An optimizer that has not stepped yet has no state, so it adds no names.

    >>> model = torch.nn.BatchNorm1d(3)
    >>> list(weights.get(model))
    ['weight', 'bias']
    >>> list(weights.get(model, buffers=True))
    ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    if buffers:
        tensors |= dict(model.named_buffers())
    if optimizer is not None:
        tensors |= dict(_state(model, optimizer))
    return _arrays(tensors)


def set(  # noqa: A001
    model: nn.Module, weights: Given, optimizer: Optimizer | None = None, *, ignore_unknown: bool = False
) -> None:
    """Put what `get` gave, or a part of it, into a model, its buffers and its optimizer; what is not named stays.

    With an optimizer, its state of every parameter that is named becomes exactly what `weights` says of it: none, if
    that came from an optimizer that had not stepped. Unknown names are refused, or ignored if asked for; no match at
    all is an error in either case.

    >>> model = torch.nn.Linear(1, 1)
    >>> weights.set(model, {"wieght": [[0.5]]})
    Traceback (most recent call last):
    lockstep.errors.UserError: the model has no 'wieght': did you mean 'weight'?
    """
    tensors, trained = _named(model), _trained(model, optimizer) if optimizer is not None else {}
    values: dict[Tensor, Tensor] = {}
    states: dict[Tensor, dict[str, Tensor]] = {}
    unknown = []
    for name, array in weights.items():
        owner, _, slot = name.removeprefix(OPTIMIZER).rpartition("/")
        if name in tensors:
            _add(values, tensors[name], name, _source(name, array, tensors[name]))
            states.setdefault(tensors[name], {})
        elif name.startswith(OPTIMIZER) and optimizer is not None and owner in trained:
            live = optimizer.state.get(trained[owner], {}).get(slot)
            is_alike = isinstance(live, Tensor)
            source = _source(name, array, live) if is_alike else _tensor(name, np.asarray(array))
            states.setdefault(trained[owner], {})[slot] = source
        else:
            unknown.append(name)
    if unknown and not ignore_unknown:
        raise _unknown(unknown[0], tensors, optimizer)
    if not values and not states:
        raise UserError("none of these names is in the model: they are those of another one")
    with torch.no_grad():
        for tensor, value in values.items():
            tensor.copy_(value)
        if optimizer is not None:
            _set_states(optimizer, {one: states[one] for one in trained.values() if one in states})


def flat_size(model: nn.Module) -> int:
    """How many numbers `get_flat` gives.

    >>> weights.flat_size(torch.nn.Linear(2, 3))
    9
    """
    return sum(parameter.numel() for parameter in model.parameters())


def get_flat(model: nn.Module) -> npt.NDArray[Any]:
    """All parameters as one vector, in the order of `get`.

    >>> weights.get_flat(torch.nn.Linear(2, 3)).shape
    (9,)
    """
    named = dict(model.named_parameters())
    if not named:
        raise UserError("the model has no parameters")
    types = [_type_in_numpy(_ready(name, parameter).dtype) for name, parameter in named.items()]
    array = np.empty(flat_size(model), _numpy(functools.reduce(torch.promote_types, types)))
    flat = torch.from_numpy(array)
    with torch.no_grad():
        for name, place in _places(model):
            flat[place].view(named[name].shape).copy_(named[name])
    return array


def set_flat(model: nn.Module, flat: npt.ArrayLike) -> None:
    """Set all parameters from one vector.

    >>> model = torch.nn.Linear(2, 1)
    >>> weights.set_flat(model, [1, 2, 3])
    >>> model(torch.ones(1, 2)).item()
    6.0
    >>> weights.set_flat(model, [1, 2])
    Traceback (most recent call last):
    lockstep.errors.UserError: the model takes a vector of 3 numbers, not an array of shape (2,)
    """
    array, named = np.asarray(flat), dict(model.named_parameters())
    if array.shape != (flat_size(model),):
        raise UserError(f"the model takes a vector of {flat_size(model)} numbers, not an array of shape {array.shape}")
    set(model, {name: array[place].reshape(named[name].shape) for name, place in _places(model)})


def get_gradients(model: nn.Module) -> Weights:
    """The gradient of every parameter that has one; whoever has none is left out, so that an optimizer skips it.

    >>> model = torch.nn.Linear(1, 1)
    >>> model(torch.ones(1, 1)).backward()
    >>> weights.get_gradients(model)
    {'weight': array([[1.]], dtype=float32), 'bias': array([1.], dtype=float32)}
    """
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            if parameter.grad.layout != torch.strided:
                raise UserError(f"the gradient of {name} is sparse: create its module with sparse=False")
            found[name] = parameter.grad
    return _arrays(found)


def apply_gradients(model: nn.Module, gradients: Given, optimizer: Optimizer) -> None:
    """A step of the optimizer with these gradients, as if they had been computed here.

    Gradients that the optimizer's parameters had are dropped, and afterwards they have none.

    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    >>> weights.set(model, {"bias": [1.0]})
    >>> weights.apply_gradients(model, {"bias": [0.25]}, optimizer)
    >>> weights.get(model)["bias"]
    array([0.75], dtype=float32)
    """
    trained, tensors = _trained(model, optimizer), _named(model)
    values: dict[Tensor, Tensor] = {}
    for name, array in gradients.items():
        if name not in trained and name in tensors:
            raise UserError(f"the optimizer does not train {name!r}: leave its gradient out, or give another optimizer")
        if name not in trained:
            raise _unknown(name, trained, optimizer)
        _add(values, trained[name], name, _source(name, array, trained[name]))
    if not values:
        raise UserError("there are no gradients to apply: give at least one")
    optimizer.zero_grad(set_to_none=True)
    for parameter, value in values.items():
        parameter.grad = torch.empty_like(parameter).copy_(value)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


# Names


def _named(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers; tied ones by all of their names."""
    parameters, buffers = model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    return {name: _ready(name, tensor) for named in (parameters, buffers) for name, tensor in named}


def _trained(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The parameters of the model that the optimizer trains, by all of their names."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    found: dict[str, Tensor] = {n: p for n, p in model.named_parameters(remove_duplicate=False) if id(p) in own}
    if not found:
        raise UserError("the optimizer trains none of the model's parameters: give the one that was made for it")
    return found


def _state(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    seen: list[Tensor] = []
    for name, parameter in _trained(model, optimizer).items():
        if any(parameter is one for one in seen):
            continue
        seen.append(parameter)
        for slot, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                yield f"{OPTIMIZER}{name}/{slot}", value
            elif value is not None:
                raise UserError(f"the optimizer keeps {slot!r} as {type(value).__name__}, and only tensors can be read")


def _unknown(name: str, known: Mapping[str, Tensor], optimizer: Optimizer | None) -> UserError:
    if name.startswith(OPTIMIZER) and optimizer is None:
        return UserError(f"{name!r} is the state of an optimizer: give the optimizer as well, or leave it out")
    close = nearest(name.removeprefix(OPTIMIZER).rpartition("/")[0] if name.startswith(OPTIMIZER) else name, known)
    return UserError(f"the model has no {name!r}" + (f": did you mean {close!r}?" if close is not None else ""))


def _places(model: nn.Module) -> Iterator[tuple[str, slice]]:
    start = 0
    for name, parameter in model.named_parameters():
        yield name, slice(start, start + parameter.numel())
        start += parameter.numel()


# Tensors and arrays


def _ready(name: str, tensor: Tensor) -> Tensor:
    if is_lazy(tensor) or tensor.device.type == "meta":
        raise UserError(f"{name} has no values yet: run the model once, or build it on a device")
    return tensor


def _type_in_numpy(dtype: torch.dtype) -> torch.dtype:
    """The same, or a wider one where numpy has none like it."""
    if dtype.is_floating_point and dtype not in (torch.float16, torch.float32, torch.float64):
        return torch.float32
    return torch.complex64 if dtype == torch.complex32 else dtype


@functools.cache
def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    """The type of numpy for one of torch that it knows."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def _arrays(tensors: dict[str, Tensor]) -> Weights:
    """Copies. Many lie in one block of memory: numpy asks the system for large pages where it is large, and many small
    ones would take longer to get than the bytes take to copy."""
    arrays: Weights = {}
    for block in _blocks(tensors):
        memory, start = np.empty(sum(size for *_, size in block), np.uint8), 0
        for name, dtype, size in block:
            shape, length = tuple(tensors[name].shape), tensors[name].numel() * dtype.itemsize
            arrays[name] = array = memory[start : start + length].view(dtype).reshape(shape)
            torch.from_numpy(array).copy_(tensors[name].detach())
            start += size
    return arrays


def _blocks(tensors: dict[str, Tensor]) -> Iterator[list[tuple[str, np.dtype[Any], int]]]:
    """Which tensors lie together, in which types, and how many bytes each of them has there."""
    block: list[tuple[str, np.dtype[Any], int]] = []
    total = 0
    for name, tensor in tensors.items():
        dtype = _numpy(_type_in_numpy(_ready(name, tensor).dtype))
        size = -(-tensor.numel() * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if block and total + size > BLOCK_BYTES:
            yield block
            block, total = [], 0
        block.append((name, dtype, size))
        total += size
    if block:
        yield block


def _tensor(name: str, array: npt.NDArray[Any]) -> Tensor:
    """A tensor over the memory of an array, or of a copy of it; it is only read."""
    array = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    if not array.flags.writeable:  # as all arrays from Ray's store, of which torch would warn
        interface = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
        array = np.asarray(SimpleNamespace(__array_interface__=interface, owner=array))
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise UserError(f"{name} is an array of type {array.dtype}: convert it to numbers that torch knows") from None


def _source(name: str, given: npt.ArrayLike, target: Tensor) -> Tensor:
    """What is given, in a type that can be copied to the target."""
    array = np.asarray(given)
    if array.shape != tuple(target.shape):
        raise UserError(f"{name} has shape {tuple(target.shape)} in the model, and {array.shape} in what is given")
    source = _tensor(name, array)
    if torch.can_cast(source.dtype, target.dtype):
        return source
    cast = (source.real if source.is_complex() else source).to(target.dtype)
    if not torch.equal(cast.to(source.dtype), source):
        raise UserError(f"{name} has type {target.dtype} in the model, and numbers that do not fit it in what is given")
    return cast


def _add(values: dict[Tensor, Tensor], target: Tensor, name: str, source: Tensor) -> None:
    """One tensor may be named twice, if it is the same both times: torch's own state_dict does so with tied weights."""
    if target in values and not torch.equal(values[target].to(source.dtype), source):
        raise UserError(f"{name} is tied to another weight that is given other numbers: give one of them")
    values[target] = source


def _set_states(optimizer: Optimizer, states: dict[Tensor, dict[str, Tensor]]) -> None:
    """In place where the optimizer has such state already; torch knows best how to put in what is new."""
    renewed = {}
    for parameter, given in states.items():
        live = {slot: value for slot, value in optimizer.state.get(parameter, {}).items() if value is not None}
        if live.keys() != given.keys():
            renewed[parameter] = {slot: _like(parameter, value) for slot, value in given.items()}
            continue
        for slot, value in given.items():
            live[slot].copy_(value)
    if renewed:
        document = optimizer.state_dict()
        for group, numbered in zip(optimizer.param_groups, document["param_groups"], strict=True):
            for parameter, number in zip(group["params"], numbered["params"], strict=True):
                if parameter in renewed:
                    document["state"][number] = renewed[parameter]
        optimizer.load_state_dict(document)


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy that lies in memory as the parameter does, if it is of its shape."""
    if value.shape != parameter.shape:
        return value.clone()
    return torch.empty_like(parameter, dtype=value.dtype, device="cpu", requires_grad=False).copy_(value)
