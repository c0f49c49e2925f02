"""The flat layout, and what is refused before the start."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lockstep.errors import UserError
from lockstep.exchange.flat import Layout, Vector
from tests.alone import set_up, tiny_recipe


def test_parameters_and_gradients_are_aligned_views_of_flat_tensors() -> None:
    replica, strategy, step = set_up(tiny_recipe())
    base = replica.weights.untyped_storage().data_ptr()
    for place, parameter in zip(replica.layout.gradients, replica.model.parameters(), strict=True):
        assert parameter.untyped_storage().data_ptr() == base
        assert place.offset % 16 == 0
    leaf = next(step.missing())
    vector = strategy.contribution(leaf)
    for parameter, view in zip(replica.model.parameters(), vector.gradients, strict=True):
        assert parameter.grad is view
        assert view.untyped_storage().data_ptr() == vector.flat.untyped_storage().data_ptr()
        assert view.abs().sum() > 0
    strategy.close()


def test_an_untouched_parameter_has_gradient_zero() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    model = Half()
    vector = Vector(Layout.of(model, channels_last=False), torch.device("cpu"))
    vector.flat.fill_(7.0)  # what an earlier leaf left behind
    vector.zero_gradients()
    for parameter, view in zip(model.parameters(), vector.gradients, strict=True):
        parameter.grad = view
    model.used(torch.ones(1, 2)).sum().backward()
    names = [name for name, _ in model.named_parameters()]
    assert vector.gradients[names.index("used.weight")].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert vector.gradients[names.index("unused.weight")].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_tied_weights_are_stored_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert [place.name for place in Layout.of(model, False).gradients] == ["0.weight", "0.bias", "1.bias"]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.LazyLinear(3), "not initialised"),
        (nn.Embedding(3, 3, sparse=True), "sparse"),
        (nn.Linear(2, 2).half(), "float32"),
        (nn.ReLU(), "no parameters"),
    ],
    ids=["lazy", "sparse", "half", "empty"],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(model: nn.Module, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Layout.of(model, channels_last=True)
