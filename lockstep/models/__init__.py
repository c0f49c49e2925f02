"""Models, by name. The table can be read without importing torch; `build` imports the model's file.

A model's function takes num_classes and image_shape first, then its options by name.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lockstep import references
from lockstep.config import Model
from lockstep.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """Where a model's function is, and its options with their defaults."""

    module: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)


NUM_INITIAL_IMAGES = 5000
"""How many training images are shown to a model that takes weights from them."""


@runtime_checkable
class InitializedFromImages(Protocol):
    """A model that sets weights from normalised training images, before the first step."""

    def initialize_from(self, images: Tensor) -> None: ...


MODELS: dict[str, Entry] = {
    "resnet-cifar": Entry("lockstep.models.resnet_cifar", "resnet_cifar", {"depth": 20}),
    "airbench": Entry("lockstep.models.airbench", "airbench", {"width": 64, "norm_momentum": 0.4}),
    "small": Entry("lockstep.models.small", "small", {"width": 16, "dropout": 0.0}),
}


def check_model(model: Model) -> None:
    """Refuse an unknown model or option before any process starts."""
    if references.is_reference(model.name):
        references.check(model.name)
        return
    if model.name not in MODELS:
        raise unknown("model", model.name, MODELS)
    known = MODELS[model.name].options
    for option in model.options:
        if option not in known:
            raise unknown(f"option of model {model.name!r}", option, known)
    depth = model.options.get("depth", 20)
    if model.name == "resnet-cifar" and (not isinstance(depth, int) or depth < 8 or (depth - 2) % 6):
        raise UserError(f"a CIFAR ResNet has 6n+2 layers, not {depth}: the nearest are {_nearest_depths(depth)}")


def _nearest_depths(depth: Any) -> str:
    if not isinstance(depth, int) or depth < 8:
        return "8 and 14"
    lower = (depth - 2) // 6 * 6 + 2
    return f"{lower} and {lower + 6}"


def build(model: Model, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    if references.is_reference(model.name):
        function = references.load(model.name)
    else:
        entry = MODELS[model.name]
        function = getattr(importlib.import_module(entry.module), entry.function)
    network: nn.Module = function(num_classes=num_classes, image_shape=image_shape, **model.options)
    return network
