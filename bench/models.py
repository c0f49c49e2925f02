"""A user's model, named by `bench/models.py:dense60m`: where memory and exchange are all that counts."""

from __future__ import annotations

from math import prod

from torch import nn

WIDTH = 4000


def dense60m(num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Four hidden layers of 4000: 60.3 million parameters on images of 3 x 32 x 32."""
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = prod(image_shape)
    for _ in range(4):
        layers += [nn.Linear(inputs, WIDTH), nn.ReLU()]
        inputs = WIDTH
    return nn.Sequential(*layers, nn.Linear(inputs, num_classes))
