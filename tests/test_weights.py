"""`lockstep.weights`: weights, optimizer state and gradients as plain data."""

from __future__ import annotations

import doctest
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep import weights
from lockstep.errors import UserError

Optimizers = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizers] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


def network(seed: int = 0) -> nn.Sequential:
    """Kernels in channels-last, statistics, a scalar, and weights in other types."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    return model.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 1) -> None:
    optimizer.zero_grad()
    backward(model, seed)
    optimizer.step()


def backward(model: nn.Module, seed: int = 1) -> None:
    images = torch.rand(5, 3, 3, 3, generator=torch.Generator().manual_seed(seed))
    model(images).square().sum().backward()


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: tensor.detach().view(torch.uint8).numpy().tobytes() for name, tensor in contiguous(model)}


def contiguous(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, tensor.contiguous().reshape(-1)) for name, tensor in model.state_dict().items()]


def equal(one: weights.Weights, other: weights.Weights) -> bool:
    return list(one) == list(other) and all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_there_and_back_bit_for_bit() -> None:
    """F44: also what is no ordinary number."""
    model, other = network(0), network(1)
    with torch.no_grad():
        model.get_parameter("3.bias").copy_(torch.tensor([float("nan"), -0.0]))
        model.get_parameter("0.bias").copy_(torch.tensor([1e-45, float("inf"), -float("inf"), 0.1]))
    found = weights.get(model)
    assert list(found) == [name for name, _ in model.named_parameters()]
    assert {array.flags.c_contiguous for array in found.values()} == {True}
    weights.set(other, found)
    assert equal(weights.get(other), found)
    assert {name: one for name, one in bits(other).items() if name in found} == {n: bits(model)[n] for n in found}
    assert other.get_parameter("0.weight").is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("dtype", "seen"),
    [
        (torch.float64, np.float64),
        (torch.float16, np.float16),
        (torch.bfloat16, np.float32),
        (torch.float8_e4m3fn, np.float32),
        (torch.complex64, np.complex64),
    ],
)
def test_every_type_comes_back_bit_for_bit(dtype: torch.dtype, seen: type[Any]) -> None:
    """F44: all values of a type that numpy has not."""
    model = nn.Module()
    numbers = torch.arange(2**16, dtype=torch.int32).to(torch.uint16)
    wanted = (numbers.to(torch.uint8) if dtype.itemsize == 1 else numbers).view(dtype)
    if not dtype.is_complex:
        wanted = torch.where(wanted.isnan(), torch.zeros((), dtype=dtype), wanted)
    model.values = nn.Parameter(wanted.clone(), requires_grad=False)
    found = weights.get(model)
    assert found["values"].dtype == seen
    with torch.no_grad():
        model.values.zero_()
    weights.set(model, found)
    assert torch.equal(model.values.view(torch.uint8), wanted.view(torch.uint8))


def test_arrays_are_copies() -> None:
    """F44: training goes on, and what was taken stays as it was; nor does writing to it change the model."""
    model = nn.Linear(2, 2)
    found, flat = weights.get(model), weights.get_flat(model)
    before = {name: array.copy() for name, array in found.items()}
    with torch.no_grad():
        model.weight.add_(1)
    assert equal(found, before)
    assert np.array_equal(flat[:4].reshape(2, 2), before["weight"])
    live = weights.get(model)
    found["weight"][:] = 7
    assert equal(weights.get(model), live)
    weights.set(model, found)
    found["weight"][:] = 8
    assert model.weight.unique().item() == 7


def test_a_part_is_set_and_unknown_names_are_refused_or_ignored() -> None:
    """F45: nothing changes if something is wrong."""
    model = network()
    before = bits(model)
    bias = np.ones(2, dtype=np.float32)
    for wrong in ({"3.bais": bias}, {"3.bias": bias, "3.bais": bias}):
        with pytest.raises(UserError, match=r"the model has no '3.bais': did you mean '3.bias'\?"):
            weights.set(model, wrong)
    for none in ({"another.weight": bias}, {}):
        with pytest.raises(UserError, match="none of these names is in the model"):
            weights.set(model, none, ignore_unknown=True)
    with pytest.raises(UserError, match=r"'optimizer/3.bias/step' is the state of an optimizer: give the optimizer"):
        weights.set(model, {"optimizer/3.bias/step": 1})
    assert bits(model) == before
    weights.set(model, {"3.bias": bias, "another.weight": bias}, ignore_unknown=True)
    assert {name for name, one in bits(model).items() if one != before[name]} == {"3.bias"}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("3.bias", np.ones((2, 1)), r"3.bias has shape \(2,\) in the model, and \(2, 1\) in what is given"),
        ("3.bias", 1.0, r"3.bias has shape \(2,\) in the model, and \(\) in what is given"),
        ("3.bias", np.array([1, 1j]), "3.bias has type torch.float32 in the model, and numbers that do not fit it"),
        ("3.bias", ["one", "two"], "3.bias is an array of type <U3: convert it to numbers"),
        ("1.num_batches_tracked", 0.5, "1.num_batches_tracked has type torch.int64 in the model, and numbers that"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_changes_nothing(name: str, value: Any, sentence: str) -> None:
    """F45."""
    model = network()
    before = bits(model)
    with pytest.raises(UserError, match=sentence):
        weights.set(model, {"0.bias": np.zeros(4), name: value})
    assert bits(model) == before


def test_arrays_of_any_kind_can_be_set() -> None:
    """From Ray they are read-only, averages are float64, and numbers of batches are whole all the same."""
    model = network()
    stored = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=">f8").T[:, ::-1]
    stored.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights.set(model, {"3.weight": np.repeat(stored, 2, axis=1), "1.num_batches_tracked": np.float64(3.0)})
        read_only = np.frombuffer(np.array([5, 6], dtype=np.float32).tobytes(), dtype=np.float32)
        weights.set(model, {"3.bias": read_only})
    assert model.get_parameter("3.weight").tolist() == [[3, 3, 1, 1], [4, 4, 2, 2]]
    assert model.get_parameter("3.bias").tolist() == [5, 6]
    assert model.get_buffer("1.num_batches_tracked").item() == 3


def test_all_weights_as_one_vector() -> None:
    """F46."""
    model, other = network(0), network(1)
    flat = weights.get_flat(model)
    assert flat.shape == (weights.flat_size(model),) == (sum(p.numel() for p in model.parameters()),)
    assert np.array_equal(flat, np.concatenate([array.reshape(-1) for array in weights.get(model).values()]))
    weights.set_flat(other, flat)
    assert equal(weights.get(other), weights.get(model))
    before = bits(other)
    wrong: npt.ArrayLike
    for wrong in (flat[:-1], np.append(flat, 0), flat[:, None], 1.0):
        with pytest.raises(UserError, match=f"the model takes a vector of {flat.size} numbers, not an array of shape"):
            weights.set_flat(other, wrong)
    assert bits(other) == before


def test_a_vector_over_weights_of_several_types() -> None:
    """F46: in the widest of them."""
    model = nn.Sequential(nn.Linear(2, 2).bfloat16(), nn.Linear(2, 1).half())
    before = bits(model)
    flat = weights.get_flat(model)
    assert flat.dtype == np.float32
    weights.set_flat(model, np.zeros_like(flat))
    assert bits(model) != before
    weights.set_flat(model, flat)
    assert bits(model) == before


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("has_stepped", [True, False])
def test_optimizer_and_statistics_go_along_on_request(kind: str, has_stepped: bool) -> None:
    """F47: another model with another history, or none, goes on with the same bits."""
    model, other = network(0), network(1)
    optimizer, its = OPTIMIZERS[kind](model.parameters()), OPTIMIZERS[kind](other.parameters())
    step(model, optimizer)
    found = weights.get(model, optimizer, buffers=True)
    slots = {"sgd": ["momentum_buffer"], "plain": []}.get(kind, ["step", "exp_avg", "exp_avg_sq"])
    names = [f"optimizer/{name}/{slot}" for name, _ in model.named_parameters() for slot in slots]
    statistics = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert list(found) == [*weights.get(model), *statistics, *names]
    if has_stepped:
        step(other, its)
    weights.set(other, found, its)
    assert equal(weights.get(other, its, buffers=True), found)
    for one, its_optimizer in ((model, optimizer), (other, its)):
        step(one, its_optimizer, seed=2)
    assert bits(model) == bits(other)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_that_has_not_stepped_is_a_state_too(kind: str) -> None:
    """F47: going back to it forgets what came after."""
    model = network()
    optimizer = OPTIMIZERS[kind](model.parameters())
    start = weights.get(model, optimizer, buffers=True)
    assert not [name for name in start if name.startswith(weights.OPTIMIZER)]
    step(model, optimizer)
    first = bits(model)
    step(model, optimizer, seed=2)
    weights.set(model, start, optimizer)
    assert equal(weights.get(model, optimizer, buffers=True), start)
    step(model, optimizer)
    assert bits(model) == first


def test_the_state_of_an_optimizer_stays_where_nothing_is_said_of_it() -> None:
    """F47: without the optimizer, and of parameters that are not named."""
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    step(model, optimizer)
    before = weights.get(model, optimizer)
    weights.set(model, weights.get(network(1)))
    after = weights.get(model, optimizer)
    assert all(np.array_equal(after[name], before[name]) for name in before if name.startswith(weights.OPTIMIZER))
    weights.set(model, {"3.bias": [0, 0]}, optimizer)
    assert list(before) == [*weights.get(model, optimizer), "optimizer/3.bias/momentum_buffer"]


def test_setting_a_thousand_times_grows_nothing() -> None:
    """F48: neither memory nor the graph; parameters stay the objects that optimizers and hooks know."""
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    step(model, optimizer)
    found = weights.get(model, optimizer, buffers=True)
    flat = weights.get_flat(model)

    def once() -> None:
        weights.set(model, found, optimizer)
        weights.set_flat(model, flat)
        weights.apply_gradients(model, {"3.bias": [1.0, 1.0]}, optimizer)

    def footprint() -> tuple[object, ...]:
        gc.collect()
        # By type, and without lazy ones: other tests of this process may have left some, which refuse to be counted.
        tensors = [one for one in gc.get_objects() if issubclass(type(one), Tensor) and not is_lazy(one)]
        places = [tensor.data_ptr() for tensor in [*model.parameters(), *model.buffers()]]
        slots = [slot.data_ptr() for state in optimizer.state.values() for slot in state.values()]
        return len(tensors), sum(one.numel() for one in tensors), places, slots, len(optimizer.state)

    for _ in range(10):
        once()
    before, blocks = footprint(), sys.getallocatedblocks()
    for _ in range(1000):
        once()
    assert footprint() == before
    assert sys.getallocatedblocks() - blocks < 200
    assert all(one.is_leaf and one.requires_grad and one.grad_fn is None for one in model.parameters())


def test_a_change_in_the_middle_of_a_graph_is_noticed() -> None:
    """F48: autograd refuses to go back through weights that are not those it saw."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    output = model(torch.ones(1, 1))
    weights.set(model, weights.get(model))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


def test_two_networks_do_not_touch_each_other() -> None:
    """F49: though their weights have the same names."""
    one, other = network(0), network(1)
    optimizers = [OPTIMIZERS["adamw"](model.parameters()) for model in (one, other)]
    for model, optimizer in zip((one, other), optimizers, strict=True):
        step(model, optimizer)
    before = weights.get(other, optimizers[1], buffers=True)
    weights.set(one, weights.get(network(2), buffers=True), optimizers[0])
    weights.set_flat(one, np.zeros(weights.flat_size(one)))
    weights.apply_gradients(one, weights.get(one), optimizers[0])
    assert equal(weights.get(other, optimizers[1], buffers=True), before)
    weights.set(other, weights.get(one), optimizers[1])
    weights.set(one, {"3.bias": [1, 2]})
    assert other.get_parameter("3.bias").tolist() != [1, 2]
    for call in (weights.get, lambda *both: weights.set(one, weights.get(one), both[1])):
        with pytest.raises(UserError, match="the optimizer trains none of the model's parameters"):
            call(one, optimizers[1])


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_gradients_are_taken_in_one_place_and_applied_in_another(kind: str) -> None:
    """F50: with the bits of a step in one place, also where a parameter has no gradient."""
    here, there = network(0), network(0)
    ours, its = OPTIMIZERS[kind](here.parameters()), OPTIMIZERS[kind](there.parameters())
    for seed in (1, 2):
        here.get_parameter("3.bias").requires_grad_(seed == 1)
        ours.zero_grad()
        backward(here, seed)
        gradients = weights.get_gradients(here)
        assert ("3.bias" in gradients) == (seed == 1)
        ours.step()
        backward(there, seed=9)  # what is there already does not count
        weights.apply_gradients(there, gradients, its)
        assert equal(weights.get(there, its), weights.get(here, ours))
        assert all(parameter.grad is None for parameter in there.parameters())


def test_gradients_that_do_not_fit_are_one_sentence() -> None:
    """F50."""
    model = network()
    optimizer = torch.optim.SGD(model[3].parameters(), lr=0.1)
    before = bits(model)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "there are no gradients to apply"),
        ({"3.bias": [0, 0, 0]}, r"3.bias has shape \(2,\) in the model, and \(3,\) in what is given"),
        ({"3.bias": [1, 1], "3.bais": [1, 1]}, "the model has no '3.bais': did you mean '3.bias'"),
        ({"3.bias": [1, 1], "0.bias": [1, 1, 1, 1]}, "the optimizer does not train '0.bias'"),
    ]
    for gradients, sentence in wrong:
        with pytest.raises(UserError, match=sentence):
            weights.apply_gradients(model, gradients, optimizer)
    assert bits(model) == before


def test_tied_weights_are_there_once() -> None:
    """F44: and can be set by any of their names."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert list(weights.get(model)) == ["0.weight"]
    assert weights.flat_size(model) == 4
    weights.set(model, {"1.weight": np.eye(2)})
    assert model.get_parameter("0.weight").tolist() == [[1, 0], [0, 1]]
    weights.set(model, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    with pytest.raises(UserError, match=r"1.weight is tied to another weight that is given other numbers"):
        weights.set(model, {"0.weight": np.eye(2), "1.weight": np.ones((2, 2))})
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    weights.apply_gradients(model, {"1.weight": np.eye(2)}, optimizer)
    assert list(weights.get(model, optimizer)) == ["0.weight", "optimizer/0.weight/momentum_buffer"]


def test_models_without_values_are_refused() -> None:
    with torch.device("meta"):
        empty = nn.Linear(1, 1)
    for model in (nn.LazyLinear(1), empty):
        for call in (weights.get, weights.get_flat, lambda one: weights.set(one, {"bias": [0]})):
            with pytest.raises(UserError, match=r"weight has no values yet"):
                call(model)


def test_sparse_gradients_are_refused() -> None:
    model = nn.Embedding(3, 1, sparse=True)
    model(torch.tensor([0])).sum().backward()
    with pytest.raises(UserError, match="the gradient of weight is sparse"):
        weights.get_gradients(model)


def test_the_examples_in_the_documentation_are_true() -> None:
    result = doctest.testmod(weights, extraglobs={"weights": weights})
    assert result.attempted > 20
    assert result.failed == 0


def test_arrays_in_blocks_are_whole_and_do_not_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of any size, with tensors of several types, empty ones and those that fill more than a block."""
    model = nn.ParameterList(
        [torch.rand(n, dtype=dtype) for n in (0, 1, 7, 40, 3) for dtype in (torch.float16, torch.float64)]
    )
    model.append(nn.Parameter(torch.tensor(2.0)))
    for size in (1, 64, 300, 1 << 20):
        monkeypatch.setattr(weights, "BLOCK_BYTES", size)
        found = weights.get(model)
        for array in found.values():
            assert array.flags.aligned
            assert array.flags.writeable
            array += 1
        assert all(np.array_equal(found[name], p.detach().numpy() + 1) for name, p in model.named_parameters())
