"""Wide ResNets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.networks import build, build_meta, images, num_parameters, stages, with_random_norms


@pytest.mark.parametrize(
    ("depth", "width", "parameters", "millions"),
    [
        (40, 1, 563_930, 0.6),
        (40, 2, 2_243_546, 2.2),
        (40, 4, 8_949_210, 8.9),
        (16, 4, 2_748_890, 2.7),
        (16, 8, 10_961_370, 11.0),
        (22, 8, 17_158_106, 17.2),
        (28, 10, 36_479_194, 36.5),
        (28, 12, 52_517_850, 52.5),
    ],
)
def test_parameters_are_as_published(depth: int, width: int, parameters: int, millions: float) -> None:
    """F28: the millions are those of Zagoruyko and Komodakis 2016, tables 2 to 5."""
    assert num_parameters("wide-resnet", depth=depth, width=width) == parameters
    assert round(parameters / 1e6, 1) == millions


@pytest.mark.parametrize(("depth", "width"), [(40, 1), (40, 2), (40, 4), (16, 4), (16, 8), (22, 8), (28, 10), (28, 12)])
def test_every_published_size_computes_logits_from_three_stages(depth: int, width: int) -> None:
    """F28: N = (d-4)/6 units with 16k, 32k and 64k channels; at 32 pixels, and in real arithmetic at 8."""
    each = (depth - 4) // 6
    for side, network in ((32, build_meta), (8, build)):
        made = network("wide-resnet", depth=depth, width=width, side=side)
        blocks = [name for name, module in made.named_children() if list(module.named_children())]
        inputs = images(2, side).to(next(made.parameters()).device)
        shapes = [(2, 16 * width * 2**n, side // 2**n, side // 2**n) for n in range(3) for _ in range(each)]
        assert stages(made, inputs, blocks) == [*shapes, (2, 10)]


def activate(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.relu(F.batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"]))


def test_it_computes_what_the_authors_code_does() -> None:
    """F28: after pytorch/resnet.py of szagoruyko/wide-residual-networks. Two units per stage: the first of a stage has
    a projection, which starts from the activated input, the second has none."""
    network = with_random_norms(build("wide-resnet", depth=16, width=2)).eval()
    state = network.state_dict()
    x = F.conv2d(images(), state["0.weight"], padding=1)
    for number, stride in enumerate((1, 1, 2, 1, 2, 1), start=1):
        active = activate(x, state, f"{number}.norms.0")
        y = F.conv2d(active, state[f"{number}.convolutions.0.weight"], stride=stride, padding=1)
        y = activate(y, state, f"{number}.norms.1")
        y = F.conv2d(y, state[f"{number}.convolutions.1.weight"], padding=1)
        projection = state.get(f"{number}.shortcut.weight")
        assert (projection is None) == (number % 2 == 0)
        x = y + (x if projection is None else F.conv2d(active, projection, stride=stride))
    x = F.avg_pool2d(activate(x, state, "7"), 8).flatten(1)
    torch.testing.assert_close(network(images()), F.linear(x, state["11.weight"], state["11.bias"]))


def test_dropout_is_between_the_convolutions_and_off_in_evaluation() -> None:
    """F28: with probability 1 nothing reaches the second convolution of any unit, so it has no gradient."""
    network = build("wide-resnet", depth=10, width=1, dropout=1.0)
    network(images()).sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    assert not gradients["2.convolutions.1.weight"].any()
    assert gradients["2.shortcut.weight"].any()
    network = build("wide-resnet", depth=10, width=1, dropout=0.5)
    assert not torch.equal(network(images()), network(images()))
    network.eval()
    assert torch.equal(network(images()), network(images()))
