"""What would cost the bits, or cannot work, is refused in one sentence that says what to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

import lockstep
from lockstep import trained
from lockstep.errors import UserError
from lockstep.script import checks
from lockstep.script.loader import take_apart
from tests.script.loops import compute, data, small


@pytest.fixture(autouse=True)
def _own_generators() -> Iterator[None]:
    with trained.generators_kept():
        yield


DRAWS: dict[str, Callable[[], Any]] = {
    "torch's": lambda: torch.rand(1),
    "numpy's": np.random.rand,
    "module random": random.random,
}


@pytest.mark.parametrize("whose", DRAWS)
@pytest.mark.parametrize("where", ["between leaves", "after the exchange", "inside a leaf"])
def test_a_global_generator_outside_a_leaf(whose: str, where: str) -> None:
    model, optimizer, _, train = small()
    refused = False
    try:
        for step in train:
            while not step.done:
                leaves = iter(step.leaves())
                for x, y in leaves:
                    if where == "inside a leaf":
                        DRAWS[whose]()
                    step.backward(nn.functional.mse_loss(model(x), y))
                if where == "between leaves":
                    DRAWS[whose]()
                step.exchange()
            if where == "after the exchange":
                DRAWS[whose]()
            optimizer.step()
    except UserError as error:
        refused = whose in str(error) and "outside a leaf" in str(error)
    assert refused == (where != "inside a leaf")


def test_the_loss_must_be_known() -> None:
    model, _, _, train = small()
    leaves = next(iter(train)).leaves()
    x, y = next(leaves)
    nn.functional.mse_loss(model(x), y).backward()
    with pytest.raises(UserError, match=r"step.backward\(loss\) in place of loss.backward"):
        next(leaves)


def test_the_optimizer_steps_after_the_exchange() -> None:
    model, optimizer, _, train = small()
    step = next(iter(train))
    x, y = next(iter(step.leaves()))
    step.backward(nn.functional.mse_loss(model(x), y))
    with pytest.raises(UserError, match="inside a leaf: it belongs after"):
        optimizer.step()
    with pytest.raises(UserError, match=r"step\.exchange was called inside a leaf"):
        step.exchange()


def test_a_step_must_be_done() -> None:
    _, _, job, train = small()
    steps = iter(train)
    with pytest.raises(UserError, match="outside a leaf"):
        next(steps).backward(torch.zeros(1))
    with pytest.raises(UserError, match="step 0 was left before it was done"):
        next(steps)
    with pytest.raises(UserError, match="before the loop begins"):
        job.keep(more={})
    with pytest.raises(UserError, match="one loop"):
        next(iter(train))


def test_a_step_without_its_exchange() -> None:
    model, _, _, train = small()
    step = next(iter(train))
    for x, y in step.leaves():
        step.backward(nn.functional.mse_loss(model(x), y))
    with pytest.raises(UserError, match=r"call step\.exchange\(\) after"):  # `while not step.done` would never end
        next(step.leaves(), None)


def test_an_update_may_be_left_out() -> None:
    """As by a script that adds up the gradients of several steps."""
    model, optimizer, _, train = small(steps=2)
    before = model.weight.detach().clone()
    for step in train:
        compute(model, step)
        if step.index == 1:
            assert torch.equal(model.weight, before)
            optimizer.step()
    assert not torch.equal(model.weight, before)


def test_a_kept_optimizer_makes_no_step_inside_a_leaf() -> None:
    model, _, job, train = small()
    other = job.keep(other=torch.optim.SGD(model.parameters(), lr=0.1))
    step = next(iter(train))
    for x, y in step.leaves():
        step.backward(nn.functional.mse_loss(model(x), y))
        with pytest.raises(UserError, match=r"optimizer\.step\(\) was called inside a leaf"):
            other.step()
        break


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


TRAINING: dict[str, Callable[[], Any]] = {
    "WeightedRandomSampler": lambda: data(shuffle=False, sampler=WeightedRandomSampler([1.0] * 32, 32)),
    "shuffle=True": lambda: data(shuffle=False),
    "leave generator out": lambda: data(generator=torch.Generator()),
    "leave worker_init_fn out": lambda: data(worker_init_fn=print),
    "IterableDataset": lambda: DataLoader(Endless(), batch_size=2),
    "no batch size": lambda: data(batch_size=None),
    "and not list": lambda: [1, 2],
}


@pytest.mark.parametrize("sentence", TRAINING)
def test_a_loader_with_an_order_of_its_own(sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        small(TRAINING[sentence]())


class Forgetful(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self._own = random.Random()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self._own.random())


def test_a_data_set_with_a_random_state_of_its_own() -> None:
    with pytest.raises(UserError, match="another sample 0 every time"):
        checks.check_pure(take_apart(DataLoader(Forgetful()), trains=False), 0)
    checks.check_pure(take_apart(data(), trains=True), 0)


def test_parts_that_cannot_be_trained() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(UserError, match="not the model's"):
        lockstep.job(model=nn.Linear(2, 2), optimizer=optimizer)
    with pytest.raises(UserError, match="without DataParallel"):
        lockstep.job(model=nn.DataParallel(model), optimizer=optimizer)
    with pytest.raises(UserError, match="LBFGS"):
        lockstep.job(model=model, optimizer=torch.optim.LBFGS(model.parameters()))
    with pytest.raises(UserError, match="more cannot be kept"):
        lockstep.job(model=model, optimizer=optimizer, more=3)
    with pytest.raises(UserError, match="power of two"):
        next(iter(lockstep.job(model=model, optimizer=optimizer).batches(data(), steps=1, leaves=3)))
    with pytest.raises(UserError, match="either epochs or steps"):
        lockstep.job(model=model, optimizer=optimizer).batches(data())


def test_an_evaluation_must_give_sums() -> None:
    model, optimizer, job, train = small(steps=1)
    for step in train:
        compute(model, step)
        optimizer.step()
        for wrong, sentence in (({"top1": 1}, "'loss' among them"), ({"loss": 0, "top1": 0.5}, "whole number")):
            with pytest.raises(UserError, match=sentence):
                job.evaluate(data(shuffle=False), lambda x, y, wrong=wrong: wrong)
