"""Channels first and channels last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep.config import Model
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.replica import Replica
from tests.alone import set_up, tiny_recipe
from tests.models.networks import VARIANTS, build, images


def note_formats(network: nn.Module) -> set[bool]:
    """Whether convolutions give maps with channels last, once the network runs. One pixel has no format."""
    seen: set[bool] = set()

    def note(module: nn.Module, inputs: object, output: Tensor) -> None:
        if output.shape[2] > 1:
            seen.add(output.stride(1) == 1)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    return seen


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_a_model_does_not_depend_on_the_format(name: str, options: dict[str, Any]) -> None:
    """F34: logits and gradients, in float64, in which no ReLU is close enough to zero for rounding to switch it."""
    torch.manual_seed(5)
    network = build(name, **options).double()
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        network.to(memory_format=memory_format).zero_grad()  # type: ignore[call-overload]
        seen = note_formats(network)
        logits = network(images(4, 8).double().to(memory_format=memory_format))
        logits.square().sum().backward()
        results.append([logits, *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
        assert seen == {memory_format is torch.channels_last}
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).norm() <= 1e-9 * ours.norm()


def leaf(channels_last: bool) -> tuple[Replica, dict[str, Tensor], Tensor]:
    """A replica, the gradients of one leaf by name, and its loss."""
    model = Model(name="resnet-cifar", options={"depth": 8})
    replica, strategy, _ = set_up(tiny_recipe(model=model, channels_last=channels_last))
    seen = note_formats(replica.model)
    dataset = open_dataset(replica.recipe.data, replica.recipe.seed)
    vector = replica.gradient(dataset.train.fetch(in_order(0, 16)), seed=1, step=0)
    strategy.close()
    assert seen == {channels_last}
    names = [name for name, _ in replica.model.named_parameters()]
    return replica, dict(zip(names, vector.gradients, strict=True)), vector.counts[0]


def test_the_key_of_the_recipe_changes_the_format_and_the_result_only_by_rounding() -> None:
    """F34: images, kernels and gradients of a leaf, as a worker computes it."""
    first, first_gradients, first_loss = leaf(channels_last=False)
    last, last_gradients, last_loss = leaf(channels_last=True)
    torch.testing.assert_close(first_loss, last_loss)
    torch.testing.assert_close(first.statistics, last.statistics, rtol=1e-4, atol=1e-5)
    for (key, ours), (_, theirs) in zip(first.model.named_parameters(), last.model.named_parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert (ours.stride() == theirs.stride()) == (ours.dim() != 4)
        difference = first_gradients[key] - last_gradients[key]
        assert difference.norm() <= 1e-3 * first_gradients[key].norm(), key
