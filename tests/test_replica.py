"""A replica's arithmetic: what a leaf's gradient depends on, and what it does not."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.config import Model
from lockstep.errors import UserError
from lockstep.exchange import tree
from lockstep.step import Step
from lockstep.strategies import catchup
from tests.alone import set_up, tiny_recipe, train
from tests.conftest import REPOSITORY


def test_all_replicas_start_from_the_same_bits_whatever_came_before() -> None:
    """F58: start weights are a function of the seed and nothing else, so they never need to travel."""
    first = set_up(tiny_recipe())[0].digest()
    torch.manual_seed(123)
    np.random.seed(5)
    random.seed(9)
    torch.rand(10)
    assert set_up(tiny_recipe())[0].digest() == first
    assert set_up(tiny_recipe(seed=1))[0].digest() != first


def test_a_leaf_does_not_depend_on_the_leaves_before_it() -> None:
    """BatchNorm statistics and random generators start anew, so the order of leaves is free."""
    recipe = tiny_recipe(model=Model(name="small", options={"dropout": 0.5}))
    results = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        _, strategy, step = set_up(recipe)
        leaves = {leaf.index: leaf for leaf in all_leaves(step)}
        results.append({index: strategy.contribution(leaves[index]).flat.clone() for index in order})
        strategy.close()
    for index in range(4):
        assert torch.equal(results[0][index], results[1][index])
    assert not torch.equal(results[0][0], results[0][1])


def all_leaves(step: Step):  # type: ignore[no-untyped-def]
    from lockstep import philox
    from lockstep.step import Leaf

    return [Leaf(step.index, i, philox.leaf_seed(step.seed, step.index, i)) for i in range(4)]


def test_adding_in_a_chain_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control to the tree: the digest notices the order of additions."""
    in_tree = train(tiny_recipe()).digest()
    assert train(tiny_recipe()).digest() == in_tree

    def hold_in_chain(self: Step, leaf: object, contribution: object) -> None:
        self.losses[leaf.index] = contribution.counts[0].clone()  # type: ignore[attr-defined]
        root = tree.root(4)
        if root in self.held:
            self.held[root].flat.add_(contribution.flat)  # type: ignore[attr-defined]
        else:
            self.held[root] = contribution  # type: ignore[assignment]
        self.computed.add(leaf.index)  # type: ignore[attr-defined]

    monkeypatch.setattr(Step, "hold", hold_in_chain)
    assert train(tiny_recipe()).digest() != in_tree


def test_statistics_are_the_average_over_leaves_and_counters_advance_by_one() -> None:
    replica, strategy, step = set_up(tiny_recipe())
    own = []
    for leaf in step.missing():
        contribution = strategy.contribution(leaf)
        own.append(contribution.statistics.clone())
        step.hold(leaf, contribution)
    strategy.exchange(step)
    strategy.apply(step)
    mean = ((own[0] + own[1]) + (own[2] + own[3])) / 4
    assert torch.equal(replica.statistics, mean)
    counters = [buffer for name, buffer in replica.model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counters
    assert all(counter.item() == 1 for counter in counters)
    strategy.close()


def uneven(num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """A model with an integer buffer that depends on the data."""

    class Counting(nn.Module):
        seen: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(int(np.prod(image_shape)), num_classes)
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += (x.flatten(1).sum(1) > 0).sum()
            logits: torch.Tensor = self.layer(x.flatten(1))
            return logits

    return Counting()


def test_integer_buffers_that_differ_between_leaves_are_refused() -> None:
    recipe = replace(tiny_recipe(), model=Model(name=f"{__file__}:uneven"))
    replica, strategy, step = set_up(recipe)
    for leaf in step.missing():
        step.hold(leaf, strategy.contribution(leaf))
    strategy.exchange(step)
    assert step.sample is not None
    with pytest.raises(UserError, match="integer buffer seen"):
        replica.check_integers(step.sample, step.reduced)
    strategy.close()


def test_the_number_of_vectors_stays_small() -> None:
    """V leaves one after the other need log2(V) + 1 vectors, and no more in later steps."""
    replica, strategy, step = set_up(replace(tiny_recipe(), leaves=16))
    for _ in range(3):
        most = 0
        for leaf in step.missing():
            step.hold(leaf, strategy.contribution(leaf))
            most = max(most, len(step.held))
        strategy.exchange(step)
        strategy.apply(step)
        step = step.next()
        assert most <= 4
    assert len(replica.pool._free) == 5
    strategy.close()


def test_a_joiner_receives_the_whole_state() -> None:
    """Weights, statistics, momentum, the last result, and what the next row of metrics is made of."""
    giver, receiver = train(tiny_recipe()), set_up(tiny_recipe(seed=1))[0]
    giver.tally = [[0.1, 2.0, 3.0], [0.7, 1.0, 4.0]]
    step = set_up(tiny_recipe())[2]
    step.reduced.flat.uniform_()
    reduced = catchup.unpack(catchup.pack(giver, step), receiver)
    assert torch.equal(reduced, step.reduced.flat)
    assert receiver.tally == giver.tally
    mine, theirs = receiver.copy_state(), giver.copy_state()
    for one, other in ((mine.model, theirs.model), (mine.optimizer, theirs.optimizer)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert mine.optimizer


def test_a_worker_does_not_import_the_compiler() -> None:
    """torch.optim does, which costs every start 1.5 s."""
    program = (
        "import sys; from tests.alone import tiny_recipe, train; from lockstep.config import Optimizer; "
        "train(tiny_recipe()); train(tiny_recipe(optimizer=Optimizer(name='adamw'))); import lockstep.worker; "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0
