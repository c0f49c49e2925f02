"""BatchNorm: what can be set, and what evaluation uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lockstep import models
from lockstep.config import Evaluation, Model
from lockstep.data import open_dataset
from lockstep.evaluate import evaluate_leaf
from tests.alone import tiny_recipe, train
from tests.models.networks import QUICK, VARIANTS, build, build_meta, images, with_random_norms

WITH_NORMS = sorted(name for name, entry in models.MODELS.items() if "norm_momentum" in entry.options)


def norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def test_every_model_with_norms_has_the_options() -> None:
    """F35."""
    assert sorted(name for name in models.MODELS if norms(build_meta(name))) == WITH_NORMS


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_momentum_and_epsilon_reach_every_norm(name: str, options: dict[str, Any]) -> None:
    """F35: P's 0.997 is our 0.003."""
    network = build_meta(name, **options, norm_momentum=0.003, norm_epsilon=0.02)
    assert {(norm.momentum, norm.eps) for norm in norms(network)} == {(0.003, 0.02)}


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("resnet", 1e-5), ("resnet-cifar", 1e-5), ("resnet-ray", 1e-3), ("small", 1e-5), ("wide-resnet", 1e-5)],
)
def test_the_defaults_are_those_of_the_originals(name: str, epsilon: float) -> None:
    """F35: R has 0.9, which is our 0.1, and 0.001; H has 0.9 and 1e-5."""
    assert {(norm.momentum, norm.eps) for norm in norms(build_meta(name))} == {(0.1, epsilon)}


def test_momentum_is_the_weight_of_the_newest_batch() -> None:
    """F35."""
    network = build("small", norm_momentum=0.25)
    network(images())
    maps = nn.functional.conv2d(images(), network.get_parameter("0.weight"), stride=2, padding=2)
    torch.testing.assert_close(network.get_buffer("1.running_mean"), 0.25 * maps.mean((0, 2, 3)))


@pytest.mark.parametrize("name", WITH_NORMS)
def test_evaluation_uses_the_running_statistics(name: str) -> None:
    """F35: an image's logits depend on the statistics and not on its companions; in training it is the other way."""
    network = with_random_norms(build(name, **QUICK.get(name, {})))
    batch = images(4)
    assert not torch.allclose(network(batch)[:2], network(batch[:2]), rtol=1e-3)
    network.eval()
    alone, together = network(batch[:2]), network(batch)[:2]
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
    for norm in norms(network):
        assert norm.running_mean is not None
        norm.running_mean += 0.5
    assert not torch.allclose(network(batch[:2]), alone, rtol=1e-3)


def test_the_figures_of_an_evaluation_come_from_the_running_statistics_and_do_not_change_them() -> None:
    """F35: the loss of the test set does not depend on how many images are evaluated in one piece."""
    replica = train(tiny_recipe(model=Model(name="small")))
    source = open_dataset(replica.recipe.data, replica.recipe.seed).test
    before = replica.digest()
    whole = evaluate_leaf(replica, source, Evaluation(leaf_batch=32), 0)
    parts = [evaluate_leaf(replica, source, Evaluation(leaf_batch=8), leaf) for leaf in range(4)]
    assert whole.top1 == sum(part.top1 or 0 for part in parts)
    assert whole.loss == pytest.approx(sum(part.loss for part in parts), rel=1e-5)
    assert replica.digest() == before
    replica.statistics.mul_(2)
    assert evaluate_leaf(replica, source, Evaluation(leaf_batch=32), 0).loss != pytest.approx(whole.loss, rel=1e-3)
