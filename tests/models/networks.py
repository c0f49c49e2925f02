"""Networks for tests: real ones, and ones without memory ("meta") that are built and run in no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep import models
from lockstep.config import Model

QUICK: dict[str, dict[str, Any]] = {
    "resnet": {"depth": 18},
    "resnet-cifar": {"depth": 8},
    "resnet-ray": {"units": 1},
    "wide-resnet": {"depth": 10, "width": 2},
}
"""Options that make a model small enough for many real passes."""

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("resnet", {"depth": 18, "stem": "cifar"}),
    ("resnet", {"depth": 18, "stem": "cifar", "version": 2}),
    ("resnet", {"depth": 50, "stem": "cifar"}),
    ("resnet-cifar", {"depth": 8}),
    ("resnet-cifar", {"depth": 8, "version": 2}),
    ("resnet-cifar", {"depth": 8, "version": 2, "shortcut": "projection"}),
    ("resnet-ray", {"units": 1}),
    ("resnet-ray", {"units": 1, "bottleneck": True}),
    ("small", {}),
    ("wide-resnet", {"depth": 10, "width": 2}),
]
"""Every kind of unit, shortcut and stem once."""


def build(name: str, num_classes: int = 10, side: int = 32, **options: Any) -> nn.Module:
    model = Model(name=name, options=options)
    models.check_model(model)
    return models.build(model, num_classes=num_classes, image_shape=(3, side, side))


def build_meta(name: str, num_classes: int = 10, side: int = 32, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return build(name, num_classes, side, **options)


def num_parameters(name: str, num_classes: int = 10, **options: Any) -> int:
    return sum(parameter.numel() for parameter in build_meta(name, num_classes, **options).parameters())


def images(count: int = 4, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(7))


def stages(network: nn.Module, inputs: Tensor, names: Sequence[str]) -> list[tuple[int, ...]]:
    """The shapes behind these parts of a network, and of its logits, in evaluation. Those of "meta" are as real ones:
    every layer checks what it is given."""
    shapes: list[tuple[int, ...]] = []
    for name in names:
        network.get_submodule(name).register_forward_hook(lambda *given: shapes.append(tuple(given[2].shape)))
    with torch.inference_mode():
        logits = network.eval()(inputs)
    assert logits.is_meta or logits.isfinite().all()
    return [*shapes, tuple(logits.shape)]


@torch.no_grad()
def with_random_norms(network: nn.Module) -> nn.Module:
    """Statistics, weights and biases of every BatchNorm as after some training, so that none can be left out."""
    generator = torch.Generator().manual_seed(11)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            for tensor in (module.running_mean, module.bias):
                tensor.normal_(0, 0.2, generator=generator)
            for tensor in (module.running_var, module.weight):
                tensor.uniform_(0.5, 1.5, generator=generator)
    return network
