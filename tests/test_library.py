"""The Python face: `lockstep.train` and what it gives back."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import lockstep
from lockstep import library, runs
from lockstep.cli import parser
from lockstep.recipes import RECIPES
from lockstep.request import Request
from tests.alone import tiny_recipe
from tests.conftest import REPOSITORY, digest_in, run
from tests.test_rundirectory import make_run

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes, image_shape, width=4):
        super().__init__(nn.Conv2d(image_shape[0], width, 5, 4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(num_classes))
        self(torch.zeros(1, *image_shape))
"""

SCRIPT = f"""
import lockstep, torch
{NET}
settings = {{"evaluation.max_leaves": 1, "evaluation.every_steps": 2, "log_every": 1, "model.width": 5}}
small = {{"workers": 2, "leaves": 2, "batch_size": 16, "steps": 3, "settings": settings, "progress": False}}
run = lockstep.train("demo", model=Net, run="run", **small)
print(run.digest, run.metrics["step"], run.evaluations["step"], run.best_top1 == max(run.evaluations["top1"]))
print(run.load_model())
"""


def test_a_script_without_a_guard_trains_a_model_of_its_own(workspace: Path) -> None:
    """With the bits of the command and a model in a file; nothing is written to the script's own output."""
    Path("script.py").write_text(SCRIPT)
    Path("net.py").write_text(f"import torch\n{NET}")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run([sys.executable, "script.py"], env=environment, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, "")
    first, *shown = result.stdout.splitlines()
    options = ["--leaves", "2", "--batch-size", "16", "--steps", "3", "--set", "evaluation.max_leaves=1"]
    own = ["--model", "net.py:Net", "--set", "model.width=5", "--set", "evaluation.every_steps=2"]
    digest = digest_in(run("train", "demo", *options, *own, "--workers", "1"))
    assert first == f"{digest} [1, 2, 3] [2, 3] True"
    assert shown[0] == "Net("
    assert "class Net(nn.Sequential):" in Path("runs/run/code/cell.py").read_text()


FUNCTIONS = """
import sys
import numpy as np
import torch

SIZE = 64

def line(x):
    return 0.1 * x + 0.3

def points():
    print(points.__code__.co_filename, file=sys.stderr)
    x = np.linspace(-1, 1, SIZE).reshape(-1, 1)
    return (x, line(x)), (x[::4], line(x[::4]))

class Line(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 1)

def squares(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)

def distance(outputs, targets):
    return torch.abs(outputs - targets).flatten()
"""

OBJECTS = f"""
import lockstep
{FUNCTIONS}
recipe = lockstep.Recipe(name="line", global_batch=16, leaves=4, steps=4)
own = {{"data": points, "model": Line, "loss": squares, "metric": distance, "settings": {{"better": "lower"}}}}
for workers in (1, 2):
    run = lockstep.train(recipe, **own, workers=workers, run=f"{{workers}}", progress=False)
    print(run.digest, "distance" in run.evaluation)
SIZE = 32
print(lockstep.train(recipe, **own, workers=2, run="1", resume=True, steps=5).digest)
"""


@pytest.mark.timeout(240)  # five trainings
def test_data_loss_and_metric_of_a_script_are_functions_too(workspace: Path) -> None:
    """With one digest for 1 and 2 workers, which is that of functions in a file; a run has its own copy, which goes
    on when the script has changed, and goes along when the run is moved."""
    Path("script.py").write_text(OBJECTS)
    Path("own.py").write_text(FUNCTIONS)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run([sys.executable, "script.py"], env=environment, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    first, second, resumed = result.stdout.splitlines()
    assert first == second
    assert "the stored configuration wins: data.source stays " in result.stderr
    assert "loss stays" not in result.stderr  # what has not changed is the same code
    recipe = lockstep.Recipe(name="line", global_batch=16, leaves=4, steps=4, better="lower")
    named: dict[str, Any] = {
        "data": "own.py:points",
        "model": "own.py:Line",
        "loss": "own.py:squares",
        "metric": "own.py:distance",
    }
    from_files = lockstep.train(recipe, **named, workers=1, run="files", progress=False)
    assert first == f"{from_files.digest} True"
    assert not Path("runs/files/code").exists()
    log = next(Path("runs/2/logs").glob("worker-*.log")).read_text()
    assert str(Path("runs/2/code/data.py").resolve()) in log  # which other hosts may see, unlike the script's own
    Path("runs/2").rename("moved")
    assert lockstep.resume("moved/", steps=5, workers=1, progress=False).digest == resumed
    stored = json.loads(Path("moved/config.json").read_text())["recipe"]
    assert (stored["data"]["source"], stored["loss"]) == ("code/data.py:points", "code/loss.py:squares")


def test_what_is_no_function_is_refused_in_one_sentence(workspace: Path) -> None:
    """Before anything is written."""
    arrays = np.zeros((4, 3, 8, 8), np.uint8), np.arange(4)
    for data in (arrays, arrays[0], torch.utils.data.TensorDataset(torch.zeros(4)), 3):
        kind = type(data).__name__
        with pytest.raises(lockstep.UserError, match=f"^data takes .* not {kind}: .* give a function that returns it$"):
            lockstep.train("demo", data=data)  # type: ignore[arg-type]
    for model in (3, nn.Linear(1, 1)):
        with pytest.raises(lockstep.UserError, match=r"^model takes the name .*, not \w+: every worker makes its own$"):
            lockstep.train("demo", model=model)  # type: ignore[arg-type]
    for name in ("loss", "metric"):
        loss: dict[str, Any] = {name: nn.MSELoss()}
        with pytest.raises(lockstep.UserError, match=f"^{name} takes .* not MSELoss: .* write it as a function"):
            lockstep.train("demo", **loss)
        with pytest.raises(lockstep.UserError, match=r"settings takes plain values, and \w+ is a function: .*train$"):
            lockstep.train("demo", settings={name: digest_in})
    with pytest.raises(lockstep.UserError, match=r"^digest_in must have no parameters but path and eval_path$"):
        lockstep.train("demo", data=digest_in)
    with pytest.raises(lockstep.UserError, match=r"^recipe takes a name or a lockstep.Recipe, not NoneType$"):
        lockstep.train(None)  # type: ignore[arg-type]
    assert not Path("runs").exists()


def test_what_a_run_gives_back(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From a recipe that is made here; figures are columns, and the model is that of the checkpoint."""
    recipe = tiny_recipe(log_every=1, average=0.5)
    settings = {"evaluation.max_leaves": 1, "checkpoints.every_steps": 2}
    made = lockstep.train(recipe, workers=1, data="shapes", settings=settings, run="run", progress=False)
    assert capfd.readouterr() == ("", "")
    assert made.state == "finished"
    assert made.metrics["step"] == [1, 2, 3]
    assert all(isinstance(loss, float) for loss in made.metrics["loss"])
    assert made.metrics.keys() >= {"step", "loss", "top1", "top5", "lr", "images_per_second", "time"}
    assert made.evaluation is not None
    assert made.best_top1 == made.evaluation["top1"] == made.evaluations["top1"][-1]
    assert [path.name for path in made.checkpoints] == ["step-000000002", "step-000000003"]
    for wanted, path in (("2", made.checkpoints[0]), ("last", made.checkpoints[1])):
        model, average = made.load_model(wanted), load_file(path / "average.safetensors")
        assert not model.training
        assert all(torch.equal(parameter, average[name]) for name, parameter in model.named_parameters())
    with pytest.raises(lockstep.UserError, match=r"^checkpoint takes `best`"):
        made.load_model("beste")
    for steps, given in ((4, made), (5, made.directory)):
        assert lockstep.resume(given, workers=1, steps=steps, progress=False).metrics["step"][-1] == steps
    with pytest.raises(lockstep.UserError, match=r"^a run is given by its name or path, .* not as NoneType$"):
        lockstep.resume(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"lr": 0.1}, {"seed": 1}, {"model": "small"}, {"settings": {"log_every": 1}}])
def test_what_a_run_was_begun_with_cannot_be_asked_of_a_resume(workspace: Path, option: dict[str, Any]) -> None:
    """It went on as if nothing had been said."""
    make_run("runs/run")
    with pytest.raises(lockstep.UserError, match=rf"^{next(iter(option))} is decided when a run begins, and stays: "):
        lockstep.resume("run", **option)
    with pytest.raises(lockstep.UserError, match=r"^unknown option 'wokers': did you mean 'workers'"):
        lockstep.resume("run", wokers=1)


@pytest.mark.parametrize("option", ["evaluator", "strategy", "verify_every", "lr"])
def test_what_is_about_training_cannot_be_asked_of_an_evaluation(workspace: Path, option: str) -> None:
    make_run("runs/run")
    with pytest.raises(lockstep.UserError, match=rf"^{option} is no option of an evaluation: leave it out"):
        runs.evaluate("run", **{option: "server"})  # type: ignore[arg-type]


def options_of(command: str) -> set[str]:
    """What a command takes of a request, by its parser."""
    commands = next(one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)).choices
    names = {action.dest.removeprefix("no_") for action in commands[command]._actions}
    return names & {field.name for field in dataclasses.fields(Request)}


def test_functions_take_the_options_of_their_commands() -> None:
    assert options_of("resume") == library.OF_RESUME
    assert options_of("evaluate") < library.OF_EVALUATE <= options_of("train")


def test_mistakes_are_ordinary_exceptions(workspace: Path) -> None:
    with pytest.raises(lockstep.UserError, match="unknown recipe 'dema': did you mean 'demo'"):
        lockstep.train("dema")
    with pytest.raises(ValueError, match="unknown option 'worker': did you mean 'workers'"):
        lockstep.train("demo", worker=2)
    with pytest.raises(lockstep.UserError, match=r"unknown key 'schedul.lr': did you mean 'schedule.lr'"):
        lockstep.train("demo", settings={"schedul.lr": 1})
    for wrong, meant in (
        ({"precision": "bf61"}, "bf16"),
        ({"device": "cudo"}, "cuda"),
        ({"outer": "nestrov"}, "nesterov"),
    ):
        options: dict[str, Any] = wrong
        with pytest.raises(lockstep.UserError, match=f"unknown value of .*: did you mean '{meant}'"):
            lockstep.train("demo", **options)
    with pytest.raises(lockstep.JobError, match="the loss is not a number"):
        lockstep.train("demo", workers=1, lr=1e30, steps=20, leaves=2, batch_size=16, progress=False)


class Broken(nn.Linear):
    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__(image_shape[0], num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("as it must be")


def test_under_pytest_a_model_of_the_test_is_an_object_too(workspace: Path) -> None:
    """What it raises in a worker is the cause that is told."""
    with pytest.raises(lockstep.JobError, match="ArithmeticError: as it must be"):
        lockstep.train(tiny_recipe(), model=Broken, workers=1, data="shapes", progress=False)


def test_importing_the_public_names_is_light() -> None:
    assert isinstance(RECIPES["demo"](), lockstep.Recipe)
    for code, heavy in (
        ("import lockstep", ("torch", "numpy", "rich")),
        ("from lockstep import runs, train", ("torch",)),
    ):
        shown = f"{code}; import sys; print([name for name in {heavy} if name in sys.modules])"
        environment = {"PYTHONPATH": str(REPOSITORY)}
        result = subprocess.run([sys.executable, "-c", shown], env=environment, capture_output=True, text=True)
        assert result.stdout == "[]\n", result.stderr


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"workers": "2"}, r"another type: .*`int \| null`, got `str` - at `workers`"),
        ({"workers": 2.0}, "got `float` - at `workers`"),
        ({"run": 5}, "run takes a name or a directory as text, not int"),
        ({"loggers": "csv"}, "got `str` - at `loggers`"),
        ({"settings": ["a=1"]}, "settings takes a dict of keys and values, not list"),
    ],
)
def test_an_option_of_another_type_is_one_sentence_and_leaves_no_run(
    workspace: Path, option: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lockstep.UserError, match=sentence):
        lockstep.train("demo", progress=False, **option)
    assert not Path("runs").exists()
