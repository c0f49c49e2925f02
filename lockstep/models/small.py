"""The demo's network: four convolutions, quick on one core, and dropout for those who want to see it reproduced."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.norm import batch_norm


def small(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    width: int = 16,
    dropout: float = 0.0,
    norm_momentum: float = 0.1,
    norm_epsilon: float = 1e-5,
) -> nn.Module:
    """Three convolutions of stride 2, the first 5 x 5, and the maximum over the map; 34,000 parameters at width 16.

    The maximum finds a shape wherever it lies.
    """
    norm = batch_norm(norm_momentum, norm_epsilon)

    def layer(channels_in: int, channels: int, stride: int, kernel: int = 3) -> list[nn.Module]:
        convolution = nn.Conv2d(channels_in, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
        return [convolution, norm(channels), nn.ReLU()]

    return nn.Sequential(
        *layer(image_shape[0], width, 2, kernel=5),
        *layer(width, 2 * width, 2),
        *layer(2 * width, 2 * width, 1),
        *layer(2 * width, 4 * width, 2),
        GlobalMaxPool(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * width, num_classes),
    )


class GlobalMaxPool(nn.Module):
    """As nn.AdaptiveMaxPool2d(1), whose gradient PyTorch refuses to compute on a GPU when bits have to repeat."""

    def forward(self, images: Tensor) -> Tensor:
        return F.max_pool2d(images, images.shape[2:])
