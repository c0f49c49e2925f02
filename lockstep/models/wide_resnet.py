"""Wide ResNets of Zagoruyko and Komodakis 2016: WRN-d-k has d = 6n+4 layers and k times the channels."""

from __future__ import annotations

import torch
from torch import nn

from lockstep.models import preactivation
from lockstep.models.norm import Norm, batch_norm
from lockstep.models.shortcuts import projection

STEM_CHANNELS = 16


def wide_resnet(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    depth: int = 16,
    width: int = 4,
    dropout: float = 0.0,
    norm_momentum: float = 0.1,
    norm_epsilon: float = 1e-5,
) -> nn.Module:
    """Three stages of n units at 16, 32 and 64 channels times the width; depth = 6n + 4."""
    norm = batch_norm(norm_momentum, norm_epsilon)
    layers: list[nn.Module] = [nn.Conv2d(image_shape[0], STEM_CHANNELS, 3, padding=1, bias=False)]
    channels_in = STEM_CHANNELS
    for channels, first_stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        for number in range((depth - 4) // 6):
            layers.append(unit(channels_in, channels, first_stride if number == 0 else 1, norm, dropout))
            channels_in = channels
    layers += preactivation.head(channels_in, num_classes, norm)
    network = nn.Sequential(*layers)
    network.apply(_initialise)
    return network


def unit(channels_in: int, channels: int, stride: int, norm: Norm, dropout: float) -> preactivation.Unit:
    """Two 3 x 3 convolutions with dropout between them; a projection, from the activated input, where channels change.

    The first unit of the narrowest networks (width 1) has neither, as in the authors' code."""
    convolutions = [
        nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
    ]
    changes = channels != channels_in
    shortcut = projection(channels_in, channels, stride) if changes else nn.Identity()
    return preactivation.Unit(convolutions, shortcut, norm, shares_activation=changes, dropout=dropout)


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
    if isinstance(module, nn.Linear):
        module.bias.zero_()
