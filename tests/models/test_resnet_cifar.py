"""CIFAR ResNets with 6n+2 layers: sizes, names, and the arithmetic of v1 and v2."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.networks import build, images, num_parameters, stages, with_random_norms


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962)]
)
def test_parameters_are_as_published(depth: int, parameters: int, version: int) -> None:
    """F27: 0.27 M, 0.46 M, 0.66 M, 0.85 M and 1.7 M in He et al. 2015, table 6. v2 has as many: one norm fewer after
    the first convolution, one more behind the last block."""
    assert num_parameters("resnet-cifar", depth=depth, version=version) == parameters


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_every_published_depth_computes_logits_from_three_stages(depth: int, version: int) -> None:
    """F27: 2n layers with 16, 32 and 64 channels at 32, 16 and 8 pixels."""
    network = build("resnet-cifar", depth=depth, version=version)
    blocks = [name for name, module in network.named_children() if list(module.named_children())]
    assert len(blocks) == (depth - 2) // 2
    each = len(blocks) // 3
    shapes = [(2, 16, 32, 32)] * each + [(2, 32, 16, 16)] * each + [(2, 64, 8, 8)] * each
    assert stages(network, images(2), blocks) == [*shapes, (2, 10)]


def test_projections_add_parameters() -> None:
    """F27: 272,474 is the known size of ResNet-20 with option B: two 1 x 1 convolutions with their norms.

    758,618 is what P trains: 50 layers, n = 8, v2, with TensorFlow's cifar10_resnet_v2_generator. Its stages have
    16 x 2304 + 256 + 512, 4608 + 15 x 9216 + 512 + 992 and 18432 + 15 x 36864 + 2048 + 1984 parameters; 432 come before
    them, 128 + 650 behind."""
    assert num_parameters("resnet-cifar", depth=20, shortcut="projection") == 272_474
    assert num_parameters("resnet-cifar", depth=50, version=2, shortcut="projection-each-stage") == 758_618


def test_the_names_of_weights_have_not_changed() -> None:
    """Checkpoints of earlier versions keep loading."""
    network = build("resnet-cifar", depth=8)
    names = [name for name, _ in network.named_parameters()]
    block = ["conv1.weight", "norm1.weight", "norm1.bias", "conv2.weight", "norm2.weight", "norm2.bias"]
    blocks = [f"{number}.{name}" for number in (3, 4, 5) for name in block]
    assert names == ["0.weight", "1.weight", "1.bias", *blocks, "8.weight", "8.bias"]


def norm(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"])


def pad(x: Tensor) -> Tensor:
    smaller, none = x[:, :, ::2, ::2], torch.zeros_like(x[:, : x.shape[1] // 2, ::2, ::2])
    return torch.cat([none, smaller, none], dim=1)


def test_v1_computes_what_the_paper_says() -> None:
    """F27: convolution, norm, ReLU; the sum is activated."""
    network = with_random_norms(build("resnet-cifar", depth=8)).eval()
    state = network.state_dict()
    x = F.relu(norm(F.conv2d(images(), state["0.weight"], padding=1), state, "1"))
    for block, stride in (("3", 1), ("4", 2), ("5", 2)):
        y = F.conv2d(x, state[f"{block}.conv1.weight"], stride=stride, padding=1)
        y = F.relu(norm(y, state, f"{block}.norm1"))
        y = norm(F.conv2d(y, state[f"{block}.conv2.weight"], padding=1), state, f"{block}.norm2")
        x = F.relu(y + (x if stride == 1 else pad(x)))
    logits = F.linear(x.mean((2, 3)), state["8.weight"], state["8.bias"])
    torch.testing.assert_close(network(images()), logits)


@pytest.mark.parametrize("shortcut", ["pad", "projection-each-stage"])
def test_v2_computes_what_the_paper_says(shortcut: str) -> None:
    """F27: norm, ReLU, convolution; the input goes on untouched, but for the first block and for projections."""
    network = with_random_norms(build("resnet-cifar", depth=8, version=2, shortcut=shortcut)).eval()
    state = network.state_dict()
    x = F.conv2d(images(), state["0.weight"], padding=1)
    for block, stride in (("1", 1), ("2", 2), ("3", 2)):
        active = F.relu(norm(x, state, f"{block}.norms.0"))
        if shortcut == "projection-each-stage":
            x = F.conv2d(active, state[f"{block}.shortcut.weight"], stride=stride)
        else:
            x = active if block == "1" else pad(x)
        y = F.conv2d(active, state[f"{block}.convolutions.0.weight"], stride=stride, padding=1)
        y = F.relu(norm(y, state, f"{block}.norms.1"))
        x = x + F.conv2d(y, state[f"{block}.convolutions.1.weight"], padding=1)
    x = F.relu(norm(x, state, "4")).mean((2, 3))
    torch.testing.assert_close(network(images()), F.linear(x, state["8.weight"], state["8.bias"]))
