"""The network of airbench94 (Jordan 2024): few layers, a frozen whitening in front, made to learn in a few epochs.

The final pooling is over whatever is left of the image, so that training may begin with smaller images.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.norm import Norm, batch_norm

WHITENING_FLOOR = 5e-4
"""Added to the eigenvalues, so that directions in which patches hardly differ are not blown up."""


class Airbench(nn.Module):
    def __init__(self, num_classes: int, channels: int, widths: tuple[int, int, int], norm: Norm) -> None:
        super().__init__()
        whitened = 2 * channels * 2 * 2
        self.whiten = nn.Conv2d(channels, whitened, 2, bias=False).requires_grad_(False)
        inputs = (whitened, *widths[:-1])
        self.groups = nn.Sequential(
            *(Group(i, o, norm) for i, o in zip(inputs, widths, strict=True)),
        )
        self.head = nn.Linear(widths[-1], num_classes, bias=False)
        with torch.no_grad():
            self.head.weight.div_(self.head.weight.std())

    @torch.no_grad()
    def initialize_from(self, images: Tensor) -> None:
        """Set the first layer so that its outputs over these images are uncorrelated and of variance 1."""
        total = sum(_products(part) for part in images.split(500))  # all patches at once would fill the memory
        assert isinstance(total, Tensor)
        values, vectors = torch.linalg.eigh(total / len(images))
        kernels = (vectors / (values + WHITENING_FLOOR).sqrt()).T.float().view(len(values), -1, 2, 2)
        self.whiten.weight.copy_(torch.cat((kernels, -kernels)))

    def forward(self, images: Tensor) -> Tensor:
        features = self.groups(F.gelu(self.whiten(images))).amax((2, 3))
        logits: Tensor = self.head(features) / features.shape[1]
        return logits


def _products(images: Tensor) -> Tensor:
    """The mean products of the pixels of 2 x 2 patches, summed over images."""
    patches = F.unfold(images, 2).double()
    return (patches @ patches.transpose(1, 2)).sum(0) / patches.shape[2]


class Group(nn.Module):
    """Two convolutions; the first halves the image. They begin by passing on what they see (Dirac)."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs)
        self.norm1 = _unscaled(norm(outputs))
        self.conv2 = _convolution(outputs, outputs)
        self.norm2 = _unscaled(norm(outputs))

    def forward(self, images: Tensor) -> Tensor:
        images = F.gelu(self.norm1(F.max_pool2d(self.conv1(images), 2)))
        return F.gelu(self.norm2(self.conv2(images)))


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(convolution.weight.data[:inputs])
    return convolution


def _unscaled(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """Its factors stay 1; its biases are trained."""
    norm.weight.requires_grad_(False)
    return norm


def airbench(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    width: int = 64,
    norm_momentum: float = 0.4,
    norm_epsilon: float = 1e-5,
) -> nn.Module:
    norm = batch_norm(norm_momentum, norm_epsilon)
    return Airbench(num_classes, image_shape[0], (width, 4 * width, 4 * width), norm)
