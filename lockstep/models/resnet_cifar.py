"""The CIFAR ResNet with 6n+2 layers of He et al. 2015: basic blocks, parameter-free shortcuts (their option A)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.added = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """Every second pixel, and zeros for the new channels, half of them on each side."""
        if self.added == 0:
            return x
        before = self.added // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before))


def resnet_cifar(num_classes: int, image_shape: tuple[int, int, int], depth: int = 20) -> nn.Module:
    """Three stages of n blocks at 16, 32 and 64 channels; depth = 6n + 2."""
    blocks = (depth - 2) // 6
    layers: list[nn.Module] = [
        nn.Conv2d(image_shape[0], 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    channels_in = 16
    for stage, channels in enumerate((16, 32, 64)):
        for number in range(blocks):
            stride = 2 if stage > 0 and number == 0 else 1
            layers.append(Block(channels_in, channels, stride))
            channels_in = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes)]
    network = nn.Sequential(*layers)
    network.apply(_initialise)
    return network


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight)
