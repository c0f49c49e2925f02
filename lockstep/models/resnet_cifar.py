"""The CIFAR ResNet with 6n+2 layers: v1 of He et al. 2015, and v2, the pre-activation form of He et al. 2016.

Shortcuts where a stage begins:

    pad                    every second pixel, and zeros for the new channels: option A of the paper
    projection             a 1 x 1 convolution where the number of channels changes: option B
    projection-each-stage  a 1 x 1 convolution where a stage begins, the first one too: TensorFlow's official models
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models import preactivation
from lockstep.models.norm import Norm, batch_norm
from lockstep.models.shortcuts import Pad, projection

CHANNELS = (16, 32, 64)


def conv3x3(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    """v1: two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int, shortcut: nn.Module, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels_in, channels, stride)
        self.norm1 = norm(channels)
        self.conv2 = conv3x3(channels, channels)
        self.norm2 = norm(channels)
        self.shortcut = nn.Sequential(shortcut, norm(channels)) if isinstance(shortcut, nn.Conv2d) else shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


def preactivation_block(
    channels_in: int, channels: int, stride: int, shortcut: nn.Module, norm: Norm, *, is_first: bool
) -> preactivation.Unit:
    """v2: the same convolutions. A projection starts behind the activation, like the convolutions beside it."""
    convolutions = [conv3x3(channels_in, channels, stride), conv3x3(channels, channels)]
    shares_activation = is_first or isinstance(shortcut, nn.Conv2d)
    return preactivation.Unit(convolutions, shortcut, norm, shares_activation=shares_activation)


def make_shortcut(kind: str, channels_in: int, channels: int, stride: int, *, begins_stage: bool) -> nn.Module:
    if kind == "projection-each-stage" and begins_stage:
        return projection(channels_in, channels, stride)
    if channels == channels_in:
        return nn.Identity()
    return Pad(channels_in, channels, stride) if kind == "pad" else projection(channels_in, channels, stride)


def resnet_cifar(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    depth: int = 20,
    version: int = 1,
    shortcut: str = "pad",
    norm_momentum: float = 0.1,
    norm_epsilon: float = 1e-5,
) -> nn.Module:
    """Three stages of n blocks at 16, 32 and 64 channels; depth = 6n + 2."""
    norm = batch_norm(norm_momentum, norm_epsilon)
    layers: list[nn.Module] = [conv3x3(image_shape[0], CHANNELS[0])]
    if version == 1:
        layers += [norm(CHANNELS[0]), nn.ReLU()]
    layers += blocks((depth - 2) // 6, version, shortcut, norm)
    if version == 1:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], num_classes)]
    else:
        layers += preactivation.head(CHANNELS[-1], num_classes, norm)
    network = nn.Sequential(*layers)
    network.apply(_initialise)
    return network


def blocks(per_stage: int, version: int, shortcut: str, norm: Norm) -> list[nn.Module]:
    made: list[nn.Module] = []
    channels_in = CHANNELS[0]
    for channels in CHANNELS:
        for number in range(per_stage):
            stride = 1 if channels == channels_in else 2
            own = make_shortcut(shortcut, channels_in, channels, stride, begins_stage=number == 0)
            if version == 1:
                made.append(Block(channels_in, channels, stride, own, norm))
            else:
                made.append(preactivation_block(channels_in, channels, stride, own, norm, is_first=not made))
            channels_in = channels
    return made


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight)
