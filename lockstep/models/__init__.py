"""Models, by name. The table can be read without importing torch; `build` imports the model's file.

A model's function takes num_classes and image_shape first, then its options by name. Besides the names in the table
there are `timm:NAME`, and references to functions of the user's own (`lockstep.references`), which may take less.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lockstep import calling, references
from lockstep.config import Model
from lockstep.errors import UserError, unknown
from lockstep.models import timm_models
from lockstep.models.options import Check, above, at_least, between, layers, like, one_of

if TYPE_CHECKING:
    from inspect import Signature

    from torch import Tensor, nn

GIVEN = ("num_classes", "image_shape", "input_shape")
"""What the data say, and no option can; the last two are the same. A function of the user's own gets those that it has
parameters for."""


@dataclass(frozen=True)
class Entry:
    """Where a model's function is, its options with their defaults, and what they may be."""

    module: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    """An option that is not in here must be of the kind of its default."""
    only_with: dict[str, tuple[str, Check]] = field(default_factory=dict)
    """Options that do something only where another one has such a value."""


NUM_INITIAL_IMAGES = 5000
"""How many training images are shown to a model that takes weights from them."""


@runtime_checkable
class InitializedFromImages(Protocol):
    """A model that sets weights from normalised training images, before the first step."""

    def initialize_from(self, images: Tensor) -> None: ...


NORM = {"norm_momentum": 0.1, "norm_epsilon": 1e-5}
NORM_CHECKS = {"norm_momentum": between(0, 1), "norm_epsilon": above(0)}

MODELS: dict[str, Entry] = {
    "airbench": Entry(
        "lockstep.models.airbench",
        "airbench",
        {"width": 64, **NORM, "norm_momentum": 0.4},
        {"width": at_least(1), **NORM_CHECKS},
    ),
    "alexnet": Entry(
        "lockstep.models.alexnet",
        "alexnet",
        {"dense": 4096, "dropout": 0.5},
        {"dense": at_least(1), "dropout": between(0, 1)},
    ),
    "resnet": Entry(
        "lockstep.models.resnet",
        "resnet",
        {"depth": 50, "version": 1, "stem": "imagenet", "stride_in": "3x3", "zero_init": False, **NORM},
        {
            "depth": one_of(18, 34, 50, 101, 152, 200),
            "version": one_of(1, 2),
            "stem": one_of("imagenet", "cifar"),
            "stride_in": one_of("3x3", "1x1"),
            **NORM_CHECKS,
        },
        {"stride_in": ("depth", one_of(50, 101, 152, 200))},
    ),
    "resnet-cifar": Entry(
        "lockstep.models.resnet_cifar",
        "resnet_cifar",
        {"depth": 20, "version": 1, "shortcut": "pad", **NORM},
        {
            "depth": layers(6, 2),
            "version": one_of(1, 2),
            "shortcut": one_of("pad", "projection", "projection-each-stage"),
            **NORM_CHECKS,
        },
    ),
    "resnet-ray": Entry(
        "lockstep.models.resnet_ray",
        "resnet_ray",
        {"units": 5, "bottleneck": False, "leakiness": 0.1, **NORM, "norm_epsilon": 1e-3},
        {"units": at_least(1), "leakiness": between(0, 1), **NORM_CHECKS},
    ),
    "small": Entry(
        "lockstep.models.small",
        "small",
        {"width": 16, "dropout": 0.0, **NORM},
        {"width": at_least(1), "dropout": between(0, 1), **NORM_CHECKS},
    ),
    "wide-resnet": Entry(
        "lockstep.models.wide_resnet",
        "wide_resnet",
        {"depth": 16, "width": 4, "dropout": 0.0, **NORM},
        {"depth": layers(6, 4), "width": at_least(1), "dropout": between(0, 1), **NORM_CHECKS},
    ),
}


def check_model(model: Model) -> None:
    """Refuse an unknown model, an unknown option or a wrong value before any process starts."""
    if model.name.startswith(references.TIMM):
        timm_models.check(model.name.removeprefix(references.TIMM), model.options)
    elif references.is_reference(model.name):
        known = references.parameters(model.name)
        if known is not None:
            _check_names(model, [name for name in known if name not in GIVEN])
        _check_needs(model, references.signature(model.name))
    elif model.name in MODELS:
        entry = MODELS[model.name]
        _check_names(model, list(entry.options))
        for name, value in model.options.items():
            check = entry.checks.get(name, like(entry.options[name]))
            check.apply(f"option {name!r} of model {model.name!r}", value)
        _check_effects(model, entry)
    else:
        references.check_names_function(model.name, "makes the model")
        raise unknown("model", model.name, [*MODELS, "timm:NAME", "file.py:function", "module:function"])


def _check_effects(model: Model, entry: Entry) -> None:
    """Refuse an option that would change nothing."""
    for name, (other, check) in entry.only_with.items():
        value = model.options.get(other, entry.options[other])
        if model.options.get(name, entry.options[name]) != entry.options[name] and not check.holds(value):
            raise UserError(
                f"option {name!r} of model {model.name!r} is for a {other} of {check.expected}, and it is {value!r}: "
                "leave it out"
            )


def _check_needs(model: Model, taken: Signature | None) -> None:
    """Refuse a function of the user's own that needs more than it gets."""
    names = dict.fromkeys([*GIVEN[:2], *model.options])
    if taken is not None and GIVEN[2] in taken.parameters:
        names[GIVEN[2]] = None
    calling.check_needs(model.name, taken, list(names), "set options with --set model.NAME=VALUE, ")


def _check_names(model: Model, known: list[str]) -> None:
    for option in model.options:
        if option not in known:
            raise unknown(f"option of model {model.name!r}", option, known)


def with_absolute_name(model: Model, base: Path) -> Model:
    """The same model under a name by which workers find it from any directory."""
    if not references.is_reference(model.name):
        return model
    return replace(model, name=references.absolute(model.name, base))


def directories(model: Model) -> tuple[Path, ...]:
    """Where a model of the user's own lies, for processes that must get it from elsewhere."""
    is_own = references.is_reference(model.name) and "/" in model.name
    return (references.directory(model.name),) if is_own else ()


def build(model: Model, num_classes: int | None, image_shape: tuple[int, ...]) -> nn.Module:
    from torch import nn

    function = _function(model)
    given = {"num_classes": num_classes, "image_shape": image_shape, "input_shape": image_shape}
    wanted = _wanted(function) if references.is_reference(model.name) else GIVEN[:2]
    if "num_classes" in wanted and num_classes is None:
        raise UserError(f"{model.name} wants to know the number of classes, but the targets of the data are floats")
    network = calling.call(model.name, function, {name: given[name] for name in wanted} | model.options)
    if not isinstance(network, nn.Module):
        raise UserError(f"{model.name} returned {type(network).__name__}, not a model: return a torch.nn.Module")
    return network


def _wanted(function: Callable[..., nn.Module]) -> Sequence[str]:
    """Which of GIVEN a function of the user's own has parameters for."""
    taken = calling.signature(function)
    if getattr(function, "__module__", "").startswith(
        "torchvision."
    ):  # whose functions pass on whatever they are given
        return GIVEN[:1]
    if taken is None or any(one.kind is one.VAR_KEYWORD for one in taken.parameters.values()):
        return GIVEN[:2]
    return [name for name in GIVEN if name in taken.parameters]


def _function(model: Model) -> Callable[..., nn.Module]:
    name = model.name
    if name.startswith(references.TIMM):
        return partial(timm_models.build, name.removeprefix(references.TIMM))
    if references.is_reference(name):
        own: Callable[..., nn.Module] = references.load(name)
        _check_own(model, own)
        return own
    entry = MODELS[name]
    function: Callable[..., nn.Module] = getattr(importlib.import_module(entry.module), entry.function)
    return function


def _check_own(model: Model, thing: Any) -> None:
    from torch import nn

    calling.check_callable(model.name, thing)
    if isinstance(thing, nn.Module):
        raise UserError(
            f"{model.name} is a model already: name a function or a class that makes it, since every worker has its own"
        )
    _check_needs(model, calling.signature(thing))
