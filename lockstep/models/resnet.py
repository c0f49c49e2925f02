"""The ImageNet ResNets with 18 to 200 layers: v1 of He et al. 2015, and v2, the pre-activation form of He et al. 2016.

The weights of v1 have the names and shapes of torchvision's, so that they can be exchanged with it.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models import preactivation
from lockstep.models.norm import Norm, batch_norm
from lockstep.models.shortcuts import projection

UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
"""Units per stage, by depth. From 50 layers on they are bottlenecks."""
WIDTHS = (64, 128, 256, 512)
"""Channels of the 3 x 3 convolutions, by stage."""


def resnet(
    num_classes: int,
    image_shape: tuple[int, int, int],
    *,
    depth: int = 50,
    version: int = 1,
    stem: str = "imagenet",
    stride_in: str = "3x3",
    zero_init: bool = False,
    norm_momentum: float = 0.1,
    norm_epsilon: float = 1e-5,
) -> nn.Module:
    """Four stages. The stem "imagenet" makes images 4 times smaller, "cifar" keeps their size.

    `stride_in` is where a bottleneck becomes smaller: "1x1" as in the paper, or "3x3", known as v1.5, which skips no
    pixels. With `zero_init`, every unit starts as the identity.
    """
    norm = batch_norm(norm_momentum, norm_epsilon)
    layers = stem_layers(image_shape[0], stem, version, norm)
    channels_in = WIDTHS[0]
    for stage, (width, count) in enumerate(zip(WIDTHS, UNITS[depth], strict=True), start=1):
        units: list[nn.Module] = []
        for number in range(count):
            convolutions = make_convolutions(depth, channels_in, width, 2 if stage > 1 > number else 1, stride_in)
            units.append(make_unit(convolutions, version, norm, is_first=stage == 1 and number == 0))
            channels_in = convolutions[-1].out_channels
        layers[f"layer{stage}"] = nn.Sequential(*units)
    layers.update(head_layers(channels_in, num_classes, version, norm))
    network = nn.Sequential(layers)
    network.apply(_initialise)
    if zero_init:
        network.apply(_make_identity)
    return network


def stem_layers(channels_in: int, kind: str, version: int, norm: Norm) -> OrderedDict[str, nn.Module]:
    kernel, stride = (7, 2) if kind == "imagenet" else (3, 1)
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(channels_in, WIDTHS[0], kernel, stride=stride, padding=kernel // 2, bias=False)
    if version == 1:
        layers.update(bn1=norm(WIDTHS[0]), relu=nn.ReLU())
    if kind == "imagenet":
        layers["maxpool"] = nn.MaxPool2d(3, stride=2, padding=1)
    return layers


def head_layers(channels: int, num_classes: int, version: int, norm: Norm) -> dict[str, nn.Module]:
    if version == 1:
        return {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(channels, num_classes)}
    names = ("norm", "relu", "avgpool", "flatten", "fc")
    return dict(zip(names, preactivation.head(channels, num_classes, norm), strict=True))


def make_convolutions(depth: int, channels_in: int, width: int, stride: int, stride_in: str) -> list[nn.Conv2d]:
    """Those of one unit: two of 3 x 3, or a bottleneck of 1 x 1, 3 x 3 and, with four times the width, 1 x 1."""
    conv = partial(nn.Conv2d, bias=False)
    if depth < 50:
        return [conv(channels_in, width, 3, stride=stride, padding=1), conv(width, width, 3, padding=1)]
    in_1x1, in_3x3 = (stride, 1) if stride_in == "1x1" else (1, stride)
    return [
        conv(channels_in, width, 1, stride=in_1x1),
        conv(width, width, 3, stride=in_3x3, padding=1),
        conv(width, 4 * width, 1),
    ]


def make_unit(convolutions: list[nn.Conv2d], version: int, norm: Norm, *, is_first: bool) -> nn.Module:
    """A unit with a projection if the convolutions change the shape."""
    channels_in, channels = convolutions[0].in_channels, convolutions[-1].out_channels
    stride = max(convolution.stride[0] for convolution in convolutions)
    shortcut = None if (channels, stride) == (channels_in, 1) else projection(channels_in, channels, stride)
    if version == 1:
        downsample = None if shortcut is None else nn.Sequential(shortcut, norm(channels))
        return (Basic if len(convolutions) == 2 else Bottleneck)(convolutions, downsample, norm)
    shares_activation = is_first or shortcut is not None
    return preactivation.Unit(convolutions, shortcut or nn.Identity(), norm, shares_activation=shares_activation)


class Basic(nn.Module):
    """v1 with two convolutions."""

    def __init__(self, convolutions: list[nn.Conv2d], downsample: nn.Module | None, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.conv2 = convolutions
        self.bn1, self.bn2 = (norm(convolution.out_channels) for convolution in convolutions)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """v1 with three convolutions."""

    def __init__(self, convolutions: list[nn.Conv2d], downsample: nn.Module | None, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = convolutions
        self.bn1, self.bn2, self.bn3 = (norm(convolution.out_channels) for convolution in convolutions)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


@torch.no_grad()
def _make_identity(module: nn.Module) -> None:
    """Zero what a unit multiplies its result by last. In v2 no norm follows the last convolution, so it is that."""
    if isinstance(module, Basic):
        module.bn2.weight.zero_()
    elif isinstance(module, Bottleneck):
        module.bn3.weight.zero_()
    elif isinstance(module, preactivation.Unit):
        module.convolutions[-1].weight.zero_()  # type: ignore[operator]
