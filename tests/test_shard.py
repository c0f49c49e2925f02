"""What a server of `async` does with gradients: once each, in the sum as far as a synchronous step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from lockstep.config import Group, Optimizer, Recipe
from lockstep.exchange.flat import Vector
from lockstep.exchange.shares import counts, pull_bytes, push_bytes, shares
from lockstep.replica import Replica
from lockstep.shard import Shard
from tests.alone import set_up, tiny_recipe


def message(shard: Shard, replica: Replica, vector: Vector) -> Tensor:
    """What a worker sends of a contribution."""
    flat = vector.flat.clone()
    flat[replica.layout.statistics_start : replica.layout.integers_start] -= replica.statistics
    share = shard.share
    rest = flat[replica.layout.integers_start :]
    return torch.cat([flat[slice(*share.gradients)], flat[slice(*share.statistics)], rest])


def contributions(recipe: Recipe, number: int) -> tuple[Replica, list[Vector]]:
    """Leaves of the first step, all from the initial weights."""
    replica, strategy, step = set_up(recipe)
    found = [strategy.contribution(step.leaf(index)) for index in range(number)]
    replica.rewind()
    return replica, found


def state_of(shards: list[Shard]) -> dict[str, Tensor]:
    return {name: tensor for shard in shards for name, tensor in load(shard.packed(True, [])).items()}


def test_the_updates_of_a_step_add_up_to_the_synchronous_one() -> None:
    """F54: SGD without momentum, from the same weights; statistics and integer buffers too."""
    recipe = tiny_recipe(optimizer=Optimizer(momentum=0.0, nesterov=False, weight_decay=0.0))
    replica, leaves = contributions(recipe, 4)
    shard = Shard(set_up(recipe)[0], 1, 0, 0)
    for index in (2, 0, 3, 1):
        assert shard.push(0, index, message(shard, replica, leaves[index])) is not None
    mean = Vector(replica.layout, replica.device.torch)
    mean.flat.copy_(torch.stack([leaf.flat for leaf in leaves]).mean(0))
    replica.apply(mean, 0)
    found = state_of([shard])
    for name, tensor in replica.named_state():
        torch.testing.assert_close(found[f"model/{name}"], tensor.detach())
    assert any(name.endswith("num_batches_tracked") for name in found)


def test_a_push_that_comes_twice_is_applied_once() -> None:
    """F54, also when its step is long done."""
    replica, leaves = contributions(tiny_recipe(), 4)
    shard = Shard(set_up(tiny_recipe())[0], 1, 0, 0)
    assert shard.push(0, 1, message(shard, replica, leaves[1])) is not None
    before = state_of([shard])
    assert shard.push(0, 1, message(shard, replica, leaves[1])) is None
    assert all(torch.equal(before[name], tensor) for name, tensor in state_of([shard]).items())
    assert shard.version == 1
    assert shard.push(1, 1, message(shard, replica, leaves[1])) is not None
    assert shard.advance(1) == 3
    assert shard.push(0, 2, message(shard, replica, leaves[2])) is None


def test_what_a_lost_server_had_applied_is_counted() -> None:
    replica, leaves = contributions(tiny_recipe(), 4)
    shard = Shard(set_up(tiny_recipe())[0], 1, 0, 0)
    for index, leaf in enumerate(leaves):
        shard.push(2, index, message(shard, replica, leaf))
    assert shard.advance(3) == 2 * 4
    assert shard.advance(3) == 0


@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer(momentum=0.9, nesterov=True, weight_decay=1e-3, decay="kernels"),
        Optimizer(momentum=0.9, momentum_correction=False),
        Optimizer(name="adamw", groups=(Group(match="*.bias", lr=2.0),)),
        Optimizer(name="muon", momentum=0.6),
    ],
    ids=["sgd", "uncorrected", "adamw", "muon"],
)
def test_several_servers_do_together_what_one_does(optimizer: Optimizer) -> None:
    """F54: whole tensors, so that any optimizer works; with a moving average too."""
    recipe = tiny_recipe(optimizer=optimizer, average=0.9)
    replica, leaves = contributions(recipe, 4)

    def train(number: int) -> dict[str, Tensor]:
        found = [Shard(set_up(recipe)[0], number, slot, 0) for slot in range(number)]
        for step in (0, 1):
            for index, leaf in enumerate(leaves):
                for shard in found:
                    shard.push(step, index, message(shard, replica, leaf))
        return state_of(found)

    alone, together = train(1), train(3)
    assert set(alone) == set(together)
    assert any(name.startswith("optimizer/") for name in alone)
    assert all(torch.equal(alone[name], together[name]) for name in alone)


def test_tensors_are_cut_into_balanced_pieces() -> None:
    assert counts([10, 10, 10, 10], 2) == [2, 2]
    assert counts([100, 1, 1], 2) == [1, 2]
    assert counts([1], 3) == [0, 1, 0]
    layout = set_up(tiny_recipe())[0].layout
    for number in (1, 2, 3, 50):
        found = shares(layout, number)
        assert sum(share.length for share in found) == layout.integers_start
        assert sum(len(share.names) for share in found) == len(layout.gradients) + len(layout.statistics)
        assert 4 * sum(share.length for share in found) == pull_bytes(layout)
        rest = layout.length - layout.integers_start
        assert 4 * sum(share.length + rest for share in found) == push_bytes(layout, number)


def test_a_restored_server_forgets_what_is_not_its_own() -> None:
    """The momentum of what others own takes no memory."""
    recipe = tiny_recipe()
    replica, leaves = contributions(recipe, 1)
    replica.apply(leaves[0], 0)
    restored = set_up(replace(recipe))[0]
    restored.load(replica.copy_state())
    shard = Shard(restored, 2, 1, 0)
    names = {name.split("/")[1] for name in load(shard.packed(True, [])) if name.startswith("optimizer/")}
    assert names == {name for name, _ in restored.model.named_parameters()} & shard.share.names
    assert 0 < len(names) < len(list(restored.model.parameters()))
