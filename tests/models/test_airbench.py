"""The network of fast-cifar10."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lockstep.models.airbench import Airbench, Group, airbench

SHAPE = (3, 32, 32)


def test_parameters_as_published() -> None:
    """The listing of airbench94 sums up to 1,972,792, with the 24 biases of the whitening, which ours lacks."""
    assert sum(parameter.numel() for parameter in airbench(10, SHAPE).parameters()) == 1_972_792 - 24


@pytest.mark.parametrize("side", [16, 20, 24, 32])
def test_images_of_every_size_give_logits(side: int) -> None:
    assert airbench(10, SHAPE)(torch.randn(2, 3, side, side)).shape == (2, 10)


def test_the_first_layer_whitens_what_it_is_initialized_from() -> None:
    torch.manual_seed(0)
    smooth = F.avg_pool2d(torch.randn(50, 3, 34, 34), 3, stride=1)  # neighbours correlated, as in photographs
    model = airbench(10, SHAPE)
    assert isinstance(model, Airbench)

    def covariance() -> torch.Tensor:
        outputs: torch.Tensor = model.whiten(smooth)[:, :12].transpose(0, 1).flatten(1)
        return outputs @ outputs.T / outputs.shape[1]

    before = covariance().detach()
    model.initialize_from(smooth)
    after = covariance().detach()
    assert torch.allclose(after, torch.eye(12), atol=0.05)
    assert not torch.allclose(before, torch.eye(12), atol=0.05)
    assert not model.whiten.weight.requires_grad


def test_convolutions_begin_as_the_identity() -> None:
    images = torch.randn(1, 64, 8, 8)
    assert torch.allclose(Group(64, 64, nn.BatchNorm2d).conv2(images), images, atol=1e-6)
