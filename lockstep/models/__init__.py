"""Models, by name. The table can be read without importing torch; `build` imports the model's file.

A model's function takes num_classes and image_shape first, then its options by name.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import references
from lockstep.config import Model
from lockstep.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """Where a model's function is, and its options with their defaults."""

    module: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)


GIVEN = ("num_classes", "image_shape")
"""What the data say, and no option can."""

MODELS: dict[str, Entry] = {
    "resnet-cifar": Entry("lockstep.models.resnet_cifar", "resnet_cifar", {"depth": 20}),
    "small": Entry("lockstep.models.small", "small", {"width": 16, "dropout": 0.0}),
}


def check_model(model: Model) -> None:
    """Refuse an unknown model or option before any process starts."""
    if references.is_reference(model.name):
        known = references.parameters(model.name)
        if known is not None:
            _check_names(model, [name for name in known if name not in GIVEN])
        return
    if model.name not in MODELS:
        raise unknown("model", model.name, MODELS)
    _check_names(model, list(MODELS[model.name].options))
    depth = model.options.get("depth", 20)
    if model.name == "resnet-cifar" and (not isinstance(depth, int) or depth < 8 or (depth - 2) % 6):
        raise UserError(f"a CIFAR ResNet has 6n+2 layers, not {depth}: the nearest are {_nearest_depths(depth)}")


def _check_names(model: Model, known: list[str]) -> None:
    for option in model.options:
        if option not in known:
            raise unknown(f"option of model {model.name!r}", option, known)


def with_absolute_name(model: Model, base: Path) -> Model:
    """The same model under a name by which workers find it from any directory."""
    if not references.is_reference(model.name):
        return model
    return replace(model, name=references.absolute(model.name, base))


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
