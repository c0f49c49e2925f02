"""What a step means to a script: gradients, buffers, what is frozen, and where it is in the training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lockstep import trained
from tests.script.loops import compute, data, small


@pytest.fixture(autouse=True)
def _own_generators() -> Iterator[None]:
    with trained.generators_kept():
        yield


def test_where_a_step_is() -> None:
    """36 samples, batches of 8: steps 4 and 8 end epochs, and the ninth is the last."""
    model, optimizer, _, train = small(data(36), steps=9)
    assert len(train) == 9
    seen = []
    for step in train:
        compute(model, step)
        optimizer.step()
        seen.append((step.index, step.epoch, step.ends_epoch, step.is_last))
    assert seen[:5] == [*((index, 0, False, False) for index in range(4)), (4, 0, True, False)]
    assert seen[8] == (8, 1, True, True)


def test_every_sample_is_seen_once_in_an_epoch() -> None:
    """F15"""
    model, optimizer, _, train = small(data(32), steps=4)
    seen: list[Tensor] = []
    for step in train:
        while not step.done:
            for x, y in step.leaves():
                seen += list(x[:, 0])
                step.backward(nn.functional.mse_loss(model(x), y))
            step.exchange()
        optimizer.step()
    whole = torch.stack([data().dataset[index][0][0] for index in range(32)])
    assert torch.equal(torch.stack(seen).sort().values, whole.sort().values)


@pytest.mark.parametrize("clears", [None, "to none", "to zero"])
def test_clearing_gradients_changes_nothing(clears: str | None) -> None:
    model, optimizer, job, train = small(steps=3)
    for step in train:
        if clears:
            optimizer.zero_grad(set_to_none=clears == "to none")
        while not step.done:
            for x, y in step.leaves():
                if clears:
                    optimizer.zero_grad(set_to_none=clears == "to none")
                step.backward(nn.functional.mse_loss(model(x), y))
            step.exchange()
        optimizer.step()
        if clears:
            optimizer.zero_grad(set_to_none=clears == "to none")
    test_clearing_gradients_changes_nothing.digests.add(job.digest())  # type: ignore[attr-defined]
    assert len(test_clearing_gradients_changes_nothing.digests) == 1  # type: ignore[attr-defined]


test_clearing_gradients_changes_nothing.digests = set()  # type: ignore[attr-defined]


def test_what_is_frozen_stays() -> None:
    """Also if the optimizer has it, with a weight decay: it has no gradient, as without Lockstep."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    before = [parameter.clone() for parameter in model.parameters()]
    _, optimizer, _, train = small(model=model, steps=2)
    for step in train:
        compute(model, step)
        assert model[0].weight.grad is None
        optimizer.step()
    same = [torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True)]
    assert same == [True, True, False, False]


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 1)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.average: Tensor
        self.count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


def test_buffers_that_the_script_changes_keep_their_values() -> None:
    """Between steps, where all workers do the same."""
    model, optimizer, _, train = small(model=Averaging(), steps=3)
    for step in train:
        compute(model, step)
        optimizer.step()
        model.average.add_(1.0)
        model.count.add_(1)
    assert model.average.tolist() == [3.0] * 4
    assert model.count.item() == 3


def test_an_evaluation_leaves_modes_and_gradients_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model[1].eval()
    _, _, job, _ = small(model=model)

    def score(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"loss": ((model(x) - y) ** 2).sum(), "odd": torch.tensor(len(x) % 2)}

    before = torch.get_rng_state()
    figures = job.evaluate(data(37, shuffle=False), score)
    assert torch.equal(torch.get_rng_state(), before)
    assert figures["examples"] == 37
    assert figures["odd"] == 1 / 37  # four leaves of 8 and one of 5
    assert [module.training for module in model] == [True, False, True, True]
