"""Models: parameter counts, shapes, and what is refused."""

from __future__ import annotations

import pytest
import torch

from lockstep import models
from lockstep.config import Model
from lockstep.errors import UserError


def build(name: str, **options: object) -> torch.nn.Module:
    return models.build(Model(name=name, options=options), num_classes=10, image_shape=(3, 32, 32))


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (56, 853_018), (110, 1_727_962)])
def test_cifar_resnets_have_the_published_number_of_parameters(depth: int, parameters: int) -> None:
    """0.27 M, 0.46 M, 0.85 M and 1.7 M in He et al. 2015, table 6."""
    model = build("resnet-cifar", depth=depth)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_every_model_gives_one_row_of_logits_per_image(name: str) -> None:
    assert build(name)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_the_table_of_options_matches_the_function(name: str) -> None:
    import importlib
    import inspect

    entry = models.MODELS[name]
    function = getattr(importlib.import_module(entry.module), entry.function)
    options = {n: p.default for n, p in inspect.signature(function).parameters.items()}
    assert {n: d for n, d in options.items() if n not in ("num_classes", "image_shape")} == entry.options


def test_a_depth_that_is_not_6n_plus_2_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"6n\+2 layers, not 21: the nearest are 20 and 26"):
        models.check_model(Model(options={"depth": 21}))


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="did you mean 'resnet-cifar'"):
        models.check_model(Model(name="resnet-cifr"))
    with pytest.raises(UserError, match="depth"):
        models.check_model(Model(options={"dept": 20}))
