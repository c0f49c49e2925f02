"""Functions of the user's own that cannot be called as they must be: one sentence. What they raise stays as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockstep import api, models, references
from lockstep.config import Data, Model, Recipe
from lockstep.data import own
from lockstep.errors import JobError, UserError
from lockstep.objective import Objective
from lockstep.recipes.demo import demo
from lockstep.request import Request, resolve
from tests.conftest import Command
from tests.test_bad_input import refused

OWN = """
from torch import nn
number = 3
made = nn.Linear(2, 2)
def wide(num_classes, width): return nn.Linear(width, num_classes)
def five(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5))
def broken(num_classes): raise TypeError("mine")
class Net(nn.Module):
    def __init__(self, num_classes, hidden): super().__init__()
class Loss(nn.Module):
    def forward(self, outputs, targets): return outputs.mean()
def one(outputs): return outputs.mean()
def three(outputs, targets, weights): return outputs.mean()
def fitting(outputs, targets, /, *others): return outputs.mean()
def nothing(outputs, targets): return None
def pair(place): return None, None
class Pair(nn.Linear):
    def forward(self, x): return x, x
def pairs(image_shape): return Pair(2, 2)
"""


@pytest.fixture(autouse=True)
def file(workspace: Path) -> Path:
    (workspace / "own.py").write_text(OWN)
    return workspace / "own.py"


def built(name: str, **options: object) -> str:
    with pytest.raises(UserError) as error:
        models.build(Model(name=name, options=options), 10, (3, 8, 8))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("os:getcwd", "os:getcwd returned str, not a model: return a torch.nn.Module"),
        ("own.py:number", "own.py:number is no function: it is of the type int"),
        ("own.py:made", "own.py:made is a model already: name a function or a class that makes it"),
        ("torch.nn:Linear", "called with num_classes, image_shape, and needs in_features, out_features: name a"),
        ("torch:zeros", "torch:zeros cannot be called with num_classes, image_shape (zeros() missing 1 required"),
    ],
)
def test_what_makes_no_model_is_refused_when_it_is_built(name: str, sentence: str) -> None:
    assert sentence in built(name)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("own.py:wide", "with num_classes, image_shape, and needs width: name a function that needs no more, set"),
        ("own.py:Net", "and needs hidden: name a function that needs no more, set options with --set model.NAME=VALUE"),
        ("own.py", "own.py is a file: name the function in it that makes the model, as own.py:function"),
    ],
)
def test_a_model_that_needs_more_is_refused_before_the_start(model: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        resolve(demo(), Request(model=model))
    assert sentence in str(error.value)
    resolve(demo(), Request(model="own.py:wide", settings=["model.width=2"]))


def test_what_the_function_itself_raises_is_shown_as_it_is() -> None:
    with pytest.raises(TypeError, match="mine"):
        models.build(Model(name="own.py:broken"), 10, (3, 8, 8))
    with pytest.raises(JobError, match=r"(?s)Traceback.*in broken.*TypeError: mine"):
        api.train("demo", Request(model="own.py:broken", workers=1, steps=1, batch_size=16))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "five",
            "own.py:five returned a tensor of shape (4, 5) for 4 inputs of 10 classes: return one number for each",
        ),
        ("pairs", "the model returned tuple and no tensor: let its forward return the outputs alone"),
    ],
)
def test_outputs_that_are_no_logits_are_one_sentence(lockstep: Command, name: str, sentence: str) -> None:
    few = ["--steps", "1", "--batch-size", "16", "--workers", "1"]
    result: subprocess.CompletedProcess[str] = lockstep("train", "demo", *few, "--model", f"own.py:{name}")
    assert sentence in refused(result)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own.py:one", "own.py:one cannot be called with two arguments: a loss takes the outputs and the targets"),
        ("own.py:three", "own.py:three cannot be called with two arguments: a loss takes the outputs and the targets"),
        ("own.py", "own.py is a file: name the function in it that is the loss, as own.py:function"),
    ],
)
def test_a_loss_that_takes_something_else_is_refused_before_the_start(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        resolve(demo(), Request(settings=[f"loss={name}"]))
    assert sentence in str(error.value)
    resolve(demo(), Request(settings=["loss=own.py:fitting"]))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own.py:number", "own.py:number is no function: it is of the type int"),
        ("own.py:Loss", "own.py:Loss is a class: name a function of the outputs and the targets, which a loss is"),
        ("os:getcwd", "os:getcwd cannot be called with two arguments: a loss takes the outputs and the targets"),
    ],
)
def test_what_is_no_loss_is_refused_when_it_is_loaded(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        Objective(Recipe(name="", loss=name), None)
    assert sentence in str(error.value)


def test_a_metric_that_returns_no_numbers_is_refused() -> None:
    import torch

    own_metric = Objective(Recipe(name="", metric="own.py:nothing"), 2)
    with pytest.raises(UserError, match=r"own.py:nothing returned NoneType, not numbers: return a value for each"):
        own_metric.metric(torch.zeros(2, 2), torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "own.py:pair",
            "own.py:pair would be called with path, eval_path, and needs place: name a function that needs",
        ),
        ("own.py:number", "own.py:number is no function: it is of the type int"),
    ],
)
def test_data_that_no_function_of_paths_returns_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        own.open_own(Data(source=name), 0)
    assert sentence in str(error.value)


def test_a_data_function_that_needs_more_is_refused_without_being_imported(file: Path) -> None:
    file.write_text("raise RuntimeError\ndef pair(place): ...\n")
    with pytest.raises(UserError, match="and needs place"):
        own.check("own.py:pair")
    assert references.parameters("own.py:pair") == ["place"]
