"""What a residual unit adds to the output of its convolutions, when that has another shape than its input."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Pad(nn.Module):
    """No parameters: a smaller image, and zeros for the new channels, half of them on each side."""

    def __init__(self, channels_in: int, channels: int, stride: int, *, pool: bool = False) -> None:
        super().__init__()
        self.stride = stride
        self.pool = pool
        """Whether the smaller image is the average of its pixels; otherwise every second pixel is taken."""
        self.before = (channels - channels_in) // 2
        self.after = channels - channels_in - self.before

    def forward(self, x: Tensor) -> Tensor:
        smaller = F.avg_pool2d(x, self.stride) if self.pool else x[:, :, :: self.stride, :: self.stride]
        return F.pad(smaller, (0, 0, 0, 0, self.before, self.after))


def projection(channels_in: int, channels: int, stride: int) -> nn.Conv2d:
    """A convolution of 1 x 1."""
    return nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False)
