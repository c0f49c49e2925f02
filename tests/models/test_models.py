"""The table of models: every one of them builds, with any number of classes, and wrong options are refused."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

from lockstep import models
from lockstep.config import Model
from lockstep.errors import UserError
from tests.conftest import REPOSITORY
from tests.models.networks import QUICK, build, images


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_every_model_gives_one_row_of_logits_per_image(name: str) -> None:
    logits = build(name, **QUICK.get(name, {}))(images(2))
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()


@pytest.mark.parametrize("num_classes", [10, 100, 1000, 1001])
@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_any_number_of_classes(name: str, num_classes: int) -> None:
    """F33."""
    network = build(name, num_classes, **QUICK.get(name, {}))
    assert network(images(2)).shape == (2, num_classes)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_the_table_of_options_matches_the_function(name: str) -> None:
    entry = models.MODELS[name]
    function = getattr(importlib.import_module(entry.module), entry.function)
    options = {n: p.default for n, p in inspect.signature(function).parameters.items()}
    assert {n: d for n, d in options.items() if n not in models.GIVEN} == entry.options
    assert entry.checks.keys() <= entry.options.keys()


def test_the_table_and_its_checks_need_no_torch() -> None:
    program = (
        "import sys; from lockstep import models; from lockstep.config import Model; "
        "models.check_model(Model(name='resnet', options={'depth': 50})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet-cifr", {}, "unknown model 'resnet-cifr': did you mean 'resnet-cifar'?"),
        ("resnet-cifar", {"dept": 20}, "unknown option of model 'resnet-cifar' 'dept': did you mean 'depth'?"),
        ("resnet-cifar", {"depth": 21}, "must be 6n+2 layers, not 21: the nearest are 20 and 26"),
        ("resnet-cifar", {"depth": 25}, "not 25: the nearest are 20 and 26"),
        ("resnet-cifar", {"depth": 2}, "not 2: the nearest are 8 and 14"),
        ("resnet-cifar", {"depth": 20.0}, "must be 6n+2 layers, not 20.0"),
        ("resnet-cifar", {"depth": "20"}, "must be 6n+2 layers, not '20'"),
        ("resnet-cifar", {"version": 3}, "option 'version' of model 'resnet-cifar' must be 1 or 2, not 3"),
        ("resnet-cifar", {"version": True}, "must be 1 or 2, not True"),
        ("resnet-cifar", {"shortcut": "conv"}, "must be 'pad', 'projection' or 'projection-each-stage', not 'conv'"),
        ("wide-resnet", {"depth": 30}, "must be 6n+4 layers, not 30: the nearest are 28 and 34"),
        ("wide-resnet", {"width": "x"}, "must be a whole number of at least 1, not 'x'"),
        ("wide-resnet", {"width": 0}, "must be a whole number of at least 1, not 0"),
        ("wide-resnet", {"dropout": 1.5}, "must be a number between 0 and 1, not 1.5"),
        ("wide-resnet", {"dropout": None}, "must be a number between 0 and 1, not None"),
        ("resnet", {"depth": 51}, "must be 18, 34, 50, 101, 152 or 200, not 51"),
        ("resnet", {"stem": "mnist"}, "must be 'imagenet' or 'cifar', not 'mnist'"),
        ("resnet", {"stem": "cifra"}, "must be 'imagenet' or 'cifar', not 'cifra': did you mean 'cifar'?"),
        (
            "resnet",
            {"depth": 18, "stride_in": "1x1"},
            "option 'stride_in' of model 'resnet' is for a depth of 50, 101, 152 or 200, and it is 18: leave it out",
        ),
        ("resnet", {"depth": 34, "stride_in": "1x1"}, "and it is 34: leave it out"),
        ("resnet", {"zero_init": 1}, "must be true or false, not 1"),
        ("resnet-ray", {"units": 0}, "must be a whole number of at least 1, not 0"),
        ("small", {"norm_momentum": 2}, "must be a number between 0 and 1, not 2"),
        ("small", {"norm_epsilon": 0}, "must be a number above 0, not 0"),
        ("small", {"norm_epsilon": float("nan")}, "must be a number above 0, not nan"),
    ],
    ids=str,
)
def test_wrong_names_and_options_are_refused_in_one_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    """F7, F27: before any process starts, with the nearest or the known ones."""
    with pytest.raises(UserError) as refused:
        models.check_model(Model(name=name, options=options))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_whole_numbers_do_where_numbers_are_wanted() -> None:
    models.check_model(Model(name="small", options={"dropout": 0, "norm_momentum": 1}))


def test_an_option_of_bottlenecks_is_taken_where_there_are_some() -> None:
    for options in ({"stride_in": "1x1"}, {"stride_in": "1x1", "depth": 101}, {"stride_in": "3x3", "depth": 18}):
        models.check_model(Model(name="resnet", options=options))
