"""The pre-activation unit of He et al. 2016, which the variants beside this file fill with their convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.norm import Norm


class Unit(nn.Module):
    """Every convolution comes after a norm and an activation; the input is added at the end, untouched."""

    def __init__(
        self,
        convolutions: Sequence[nn.Conv2d],
        shortcut: nn.Module,
        norm: Norm,
        *,
        shares_activation: bool,
        leakiness: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(convolution.in_channels) for convolution in convolutions)
        self.convolutions = nn.ModuleList(convolutions)
        self.shortcut = shortcut
        self.shares_activation = shares_activation
        """Whether the shortcut too starts behind the first norm and activation. The paper wants this for the very first
        unit, because nothing has normalised its input yet."""
        self.leakiness = leakiness
        self.dropout = dropout
        """Probability with which inputs of every convolution but the first are dropped."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.activate(self.norms[0](x))
        shortcut = self.shortcut(y if self.shares_activation else x)
        y = self.convolutions[0](y)
        for norm, convolution in zip(self.norms[1:], self.convolutions[1:], strict=True):
            y = convolution(F.dropout(self.activate(norm(y)), self.dropout, self.training))
        result: Tensor = y + shortcut
        return result

    def activate(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.leakiness) if self.leakiness else F.relu(x)


def head(channels: int, num_classes: int, norm: Norm, leakiness: float = 0.0) -> list[nn.Module]:
    """What follows the last unit: its output has not been normalised yet."""
    activation = nn.LeakyReLU(leakiness) if leakiness else nn.ReLU()
    return [norm(channels), activation, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)]
