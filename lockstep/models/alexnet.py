"""AlexNet in one tower, as the Ray example for ImageNet had it: tanh in the dense layers, and no groups."""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.errors import UserError

LEAST_SIDE = 7


def alexnet(
    num_classes: int, image_shape: tuple[int, int, int], *, dense: int = 4096, dropout: float = 0.5
) -> nn.Module:
    """Five convolutions and three dense layers: 62,378,344 parameters for 1000 classes at 224 x 224 pixels.

    Of small images a pooling is left out if nothing would be left behind it.
    """
    channels, height, width = image_shape
    if min(height, width) < LEAST_SIDE:
        raise UserError(f"alexnet needs images of at least {LEAST_SIDE} x {LEAST_SIDE} pixels, not {width} x {height}")
    first = (height - 7) // 4 + 1, (width - 7) // 4 + 1
    second = _pooled(first)
    third = _pooled(second)
    last = _pooled(third)
    layers = OrderedDict[str, nn.Module](
        conv1=nn.Conv2d(channels, 96, 11, stride=4, padding=2),
        relu1=nn.ReLU(),
        norm1=ResponseNorm(),
        pool1=_pool(first),
        conv2=nn.Conv2d(96, 256, 5, padding=2),
        relu2=nn.ReLU(),
        norm2=ResponseNorm(),
        pool2=_pool(second),
        conv3=nn.Conv2d(256, 384, 3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(384, 384, 3, padding=1),
        relu4=nn.ReLU(),
        conv5=nn.Conv2d(384, 256, 3, padding=1),
        relu5=nn.ReLU(),
        pool5=_pool(third),
        flatten=nn.Flatten(),
        fc6=nn.Linear(256 * last[0] * last[1], dense),
        tanh6=nn.Tanh(),
        drop6=nn.Dropout(dropout),
        fc7=nn.Linear(dense, dense),
        tanh7=nn.Tanh(),
        drop7=nn.Dropout(dropout),
        fc8=nn.Linear(dense, num_classes),
    )
    network = nn.Sequential(layers)
    network.apply(_initialise)
    return network


def _pool(size: tuple[int, int]) -> nn.Module:
    return nn.MaxPool2d(3, stride=2) if min(size) >= 3 else nn.Identity()


def _pooled(size: tuple[int, int]) -> tuple[int, int]:
    """The size of a map behind a pooling."""
    return ((size[0] - 3) // 2 + 1, (size[1] - 3) // 2 + 1) if min(size) >= 3 else size


def _initialise(module: nn.Module) -> None:
    """Convolutions for ReLU, dense layers for tanh; without BatchNorm the start matters."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class ResponseNorm(nn.Module):
    """Local response normalisation over five channels: x / (2 + 1e-4 * sum of squares) ** 0.75, as in the paper.

    nn.LocalResponseNorm computes the same with a pooling whose gradient has no fixed bits on a GPU.
    """

    def forward(self, images: Tensor) -> Tensor:
        channels = images.shape[1]
        squares = F.pad(images.square(), (0, 0, 0, 0, 2, 2))
        total = sum((squares[:, shift : shift + channels] for shift in range(1, 5)), squares[:, :channels])
        return images / (2.0 + 1e-4 * total) ** 0.75
