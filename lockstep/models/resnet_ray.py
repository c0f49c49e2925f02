"""The CIFAR ResNet of Ray's example: pre-activation, leaky ReLU, three stages of 5 units, 32 layers.

Shortcuts are averages over 2 x 2 pixels with zeros for the new channels, and projections in the bottleneck variant.
"""

from __future__ import annotations

import torch
from torch import nn

from lockstep.models import preactivation
from lockstep.models.norm import Norm, batch_norm
from lockstep.models.shortcuts import Pad, projection

STEM_CHANNELS = 16


def resnet_ray(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    units: int = 5,
    bottleneck: bool = False,
    leakiness: float = 0.1,
    norm_momentum: float = 0.1,
    norm_epsilon: float = 1e-3,
) -> nn.Module:
    """Stages of 16, 32 and 64 channels, or of 64, 128 and 256 with bottlenecks."""
    norm = batch_norm(norm_momentum, norm_epsilon)
    stages = (64, 128, 256) if bottleneck else (16, 32, 64)
    layers: list[nn.Module] = [nn.Conv2d(image_shape[0], STEM_CHANNELS, 3, padding=1, bias=False)]
    channels_in = STEM_CHANNELS
    for channels in stages:
        for number in range(units):
            stride = 2 if number == 0 and channels != stages[0] else 1
            make = bottleneck_unit if bottleneck else basic_unit
            layers.append(make(channels_in, channels, stride, norm, leakiness, is_first=len(layers) == 1))
            channels_in = channels
    layers += preactivation.head(channels_in, num_classes, norm, leakiness)
    network = nn.Sequential(*layers)
    network.apply(_initialise)
    return network


def basic_unit(
    channels_in: int, channels: int, stride: int, norm: Norm, leakiness: float, *, is_first: bool
) -> preactivation.Unit:
    convolutions = [
        nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    ]
    shortcut = nn.Identity() if channels == channels_in else Pad(channels_in, channels, stride, pool=True)
    return preactivation.Unit(convolutions, shortcut, norm, shares_activation=is_first, leakiness=leakiness)


def bottleneck_unit(
    channels_in: int, channels: int, stride: int, norm: Norm, leakiness: float, *, is_first: bool
) -> preactivation.Unit:
    convolutions = [
        nn.Conv2d(channels_in, channels // 4, 1, stride=stride, bias=False),
        nn.Conv2d(channels // 4, channels // 4, 3, padding=1, bias=False),
        nn.Conv2d(channels // 4, channels, 1, bias=False),
    ]
    shortcut = nn.Identity() if channels == channels_in else projection(channels_in, channels, stride)
    return preactivation.Unit(convolutions, shortcut, norm, shares_activation=is_first, leakiness=leakiness)


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
    if isinstance(module, nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="linear")
        module.bias.zero_()
