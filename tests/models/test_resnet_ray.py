"""The ResNet of Ray's example."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.networks import build, images, num_parameters, with_random_norms


def test_32_layers_have_464154_parameters() -> None:
    """F25: as many as the trainable variables of `ResNet` in doc/examples/resnet/resnet_model.py of ray-project/ray,
    with num_residual_units=5."""
    assert num_parameters("resnet-ray") == 464_154


def test_the_bottleneck_variant_has_497690_parameters() -> None:
    """F26: the same file with use_bottleneck: filters 16, 64, 128, 256. Stages of 22,880, 94,976 and 376,320 variables;
    432 come before them, 512 + 2570 behind."""
    assert num_parameters("resnet-ray", bottleneck=True) == 432 + 22_880 + 94_976 + 376_320 + 512 + 2570 == 497_690


def activate(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    normal = (x - mean[:, None, None]) / (var[:, None, None] + 0.001).sqrt()
    y = normal * state[f"{name}.weight"][:, None, None] + state[f"{name}.bias"][:, None, None]
    return torch.where(y < 0, 0.1 * y, y)


def convolve(x: Tensor, state: dict[str, Tensor], name: str, stride: int) -> Tensor:
    weight = state[f"{name}.weight"]
    return F.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)


def pooled(x: Tensor) -> Tensor:
    """Averages over 2 x 2 pixels, and as many channels again, of zeros, half of them on each side."""
    smaller = (x[:, :, ::2, ::2] + x[:, :, 1::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, 1::2]) / 4
    none = torch.zeros_like(smaller[:, : x.shape[1] // 2])
    return torch.cat([none, smaller, none], dim=1)


def as_in_ray(network: nn.Module, x: Tensor, bottleneck: bool) -> Tensor:
    """One unit per stage, written down after Ray's `_build_model`."""
    state = network.state_dict()
    x = convolve(x, state, "0", 1)
    for unit, stride in (("1", 1), ("2", 2), ("3", 2)):
        y = activate(x, state, f"{unit}.norms.0")
        x = y if unit == "1" else x
        if bottleneck:
            x = convolve(x, state, f"{unit}.shortcut", stride)
        elif stride == 2:
            x = pooled(x)
        y = convolve(y, state, f"{unit}.convolutions.0", stride)
        for number in range(1, 3 if bottleneck else 2):
            y = activate(y, state, f"{unit}.norms.{number}")
            y = convolve(y, state, f"{unit}.convolutions.{number}", 1)
        x = x + y
    x = activate(x, state, "4").mean((2, 3))
    return F.linear(x, state["8.weight"], state["8.bias"])


@pytest.mark.parametrize("bottleneck", [False, True])
def test_it_computes_what_the_example_does(bottleneck: bool) -> None:
    """F25, F26: pre-activation, leaky ReLU 0.1, epsilon 0.001, averages and zeros or projections as shortcuts."""
    network = with_random_norms(build("resnet-ray", units=1, bottleneck=bottleneck)).eval()
    torch.testing.assert_close(network(images()), as_in_ray(network, images(), bottleneck))
