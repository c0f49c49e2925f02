"""ResNet-20 for images of 32 x 32 pixels (He et al. 2015)."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet20(nn.Sequential):
    def __init__(self, num_classes: int = 10) -> None:
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        blocks = [Block(before, after) for before, after in pairwise(widths)]
        stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes)]
        super().__init__(*stem, *blocks, *head)
