"""Muon for convolutions: momentum whose update is made orthogonal, after Jordan et al. 2024 (airbench94_muon).

PyTorch has a Muon too; it takes matrices alone and computes in bfloat16, which is slow on most CPUs. This one takes
kernels of any shape as matrices with a row per output channel, in float32. What is no kernel (biases, the last layer)
is trained by SGD with Nesterov's momentum beside it, in groups that have no `orthogonal`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: they bring small singular values near 1 in few rounds."""


SMALLEST_NORM = 1e-7
ROUNDS = 3
"""Of the iteration; five are nearer to orthogonal and cost more, with no gain in accuracy."""


class Muon(torch.optim.Optimizer):
    def __init__(self, groups: list[dict[str, Any]], momentum: float = 0.0) -> None:
        defaults = {"lr": 0.0, "momentum": momentum, "weight_decay": 0.0, "orthogonal": False, "rounds": ROUNDS}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            update = orthogonal_update if group["orthogonal"] else plain_update
            for parameter in group["params"]:
                assert parameter.grad is not None
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                update(parameter, parameter.grad, state["momentum_buffer"], group)


def plain_update(weight: Tensor, gradient: Tensor, buffer: Tensor, group: dict[str, Any]) -> None:
    """SGD with Nesterov's momentum, as torch.optim.SGD has it."""
    gradient = gradient.add(weight, alpha=group["weight_decay"])
    buffer.mul_(group["momentum"]).add_(gradient)
    weight.sub_(gradient.add(buffer, alpha=group["momentum"]), alpha=group["lr"])


def orthogonal_update(weight: Tensor, gradient: Tensor, buffer: Tensor, group: dict[str, Any]) -> None:
    """The kernel goes back to the norm sqrt(rows), which takes the place of weight decay, and then takes its step."""
    buffer.mul_(group["momentum"]).add_(gradient)
    direction = gradient.add(buffer, alpha=group["momentum"]).flatten(1)
    weight.mul_(len(weight) ** 0.5 / weight.norm().clamp_min(SMALLEST_NORM))
    weight.sub_(orthogonalized(direction, group["rounds"]).view(weight.shape), alpha=group["lr"])


def orthogonalized(matrix: Tensor, rounds: int) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T, by products of matrices alone (Newton and Schulz).

    Every round multiplies from the left by a polynomial of the matrix times its transpose, which for kernels is far
    smaller than the matrix itself: so the rounds are done with the small one, and the large one is multiplied once.
    """
    if len(matrix) > matrix[0].numel():
        return orthogonalized(matrix.T, rounds).T
    matrix = matrix / (matrix.norm() + SMALLEST_NORM)
    gram = matrix @ matrix.T
    total = factor = _polynomial(gram)
    for _ in range(rounds - 1):
        gram = factor @ gram @ factor
        factor = _polynomial(gram)
        total = factor @ total
    return total @ matrix


def _polynomial(gram: Tensor) -> Tensor:
    a, b, c = COEFFICIENTS
    found = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    found.diagonal().add_(a)
    return found
