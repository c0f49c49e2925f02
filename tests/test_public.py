"""The public names: listed with their signatures in `public.txt`, typed, and with examples that are true.

`python -m tests.test_public` writes the list anew; what changes in it, changes for users and goes into the CHANGELOG.
"""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep import config, library, result, runs
from lockstep.script import job, step
from tests.conftest import REPOSITORY

LIST = REPOSITORY / "tests" / "public.txt"
MODULES = ("lockstep", "lockstep.config", "lockstep.runs", "lockstep.weights")


def described() -> str:
    lines: list[str] = []
    public = {
        f"{module}.{name}": getattr(import_module(module), name)
        for module in MODULES
        for name in import_module(module).__all__
    }
    for name, thing in public.items():
        lines += _lines(name, thing)
    seen = [*public.values()]
    for thing in seen:  # which grows on the way
        for other in _comes_from(thing):
            if other not in seen:
                seen.append(other)
                lines += _lines(f"{other.__module__}.{other.__name__}", other)
    return "\n".join(lines) + "\n"


def _comes_from(thing: Any) -> list[type]:
    """The classes of ours that a function returns, or that an object of a class has or returns."""
    if inspect.ismodule(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
        return []
    if isinstance(thing, type):
        types = [line.rpartition("->")[2] if "->" in line else line.partition("=")[0] for line in _members(thing)]
    else:
        types = [str(inspect.signature(thing).return_annotation)]
    words = [word for text in types for word in re.findall(r"\w+", text)]
    found = [vars(sys.modules[thing.__module__]).get(word) for word in words]
    return [one for one in found if isinstance(one, type) and one.__module__.startswith("lockstep.")]


def _lines(name: str, thing: Any) -> Iterator[str]:
    """One for the name, and one for everything that can be given to it or asked of it."""
    if inspect.ismodule(thing):
        yield f"{name}: module"
    elif isinstance(thing, type) and issubclass(thing, Exception):
        yield f"{name}: {', '.join(base.__name__ for base in thing.__bases__)}"
    elif isinstance(thing, type):
        yield f"{name}: class"
        yield from _members(thing)
    else:
        signature = inspect.signature(thing)
        yield f"{name} -> {signature.return_annotation}"
        yield from (f"    {parameter}" for parameter in signature.parameters.values())


def _members(thing: Any) -> Iterator[str]:
    """What can be asked of an object, or given to its class. Others than data are made by Lockstep alone."""
    if isinstance(thing, type) and dataclasses.is_dataclass(thing):
        yield from (f"    {parameter}" for parameter in inspect.signature(thing).parameters.values())
    for attribute, value in vars(thing).items() if isinstance(thing, type) else ():
        if attribute.startswith("_") and attribute not in ("__len__", "__iter__"):
            continue
        if isinstance(value, property):
            yield f"    {attribute} -> {inspect.signature(value.fget or len).return_annotation}"
        elif inspect.isfunction(value):
            yield f"    {attribute}{inspect.signature(value)}"


def test_the_public_names_are_those_of_the_list() -> None:
    assert described() == LIST.read_text(), "if it is meant: python -m tests.test_public, and a line in CHANGELOG.md"


USER = """
from pathlib import Path
from typing import Any

import lockstep
from lockstep import runs, weights
from lockstep.config import Data, Model, Recipe, Schedule
from torch import Tensor, nn


def net(num_classes: int, image_shape: tuple[int, int, int], width: int = 8) -> nn.Module:
    return nn.Linear(width, num_classes)


def points() -> tuple[tuple[Any, Any], None]:
    return ([0.0], [1.0]), None


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def mine() -> Recipe:
    return Recipe(
        name="mine", data=Data(source="shapes"), model=Model(name="small"), schedule=Schedule(lr=0.1), steps=100
    )


def main() -> float | None:
    try:
        run: lockstep.Run = lockstep.train(mine(), model=net, workers=2, settings={"model.width": 4})
        run = lockstep.resume(run.name, steps=200)
        run = lockstep.train(mine(), data=points, loss=squared)
        print(runs.evaluate(run)["top1"], runs.export(run, "torch").name, runs.compare(run, "last"))
    except (lockstep.UserError, lockstep.JobError) as error:
        print(error)
        return None
    where: Path = run.directory
    digest: str = run.digest or ""
    print(where, digest, run.metrics["loss"][-1])
    found = weights.get(run.load_model("best"))
    weights.set(net(10, (3, 32, 32)), found, ignore_unknown=True)
    return run.best_top1


lockstep.train("demo", workers="two")  # type: ignore[arg-type]
lockstep.train("demo", model=3)  # type: ignore[arg-type]
lockstep.train("demo", data=([0.0], [1.0]))  # type: ignore[arg-type]
lockstep.trane("demo")  # type: ignore[attr-defined]
Recipe(nmae="mine")  # type: ignore[call-arg]
weights.flat_size("model").upper()  # type: ignore[attr-defined]
"""

SETTINGS = """
[mypy]
strict = true
[mypy-torch.*,numpy.*,rich.*,tensorboard.*,PIL.*,safetensors.*,timm.*,ray.*,cv2.*]
follow_imports = skip
"""
"""Large packages are left out, which takes a minute from the test."""


def test_a_users_program_is_checked_against_the_types(tmp_path: Path) -> None:
    """What is right passes, and every mistake is seen: `strict` reports an ignore that is not needed."""
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "mypy", "--follow-imports", "silent", "user.py"]
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_examples_in_the_documentation_are_true(workspace: Path) -> None:
    """Those of `lockstep.weights` are in its own test."""
    _run_examples(library.train, library.resume, result.Run, runs, *(getattr(runs, name) for name in runs.__all__))


def test_the_examples_of_a_loop_and_of_a_recipe_are_true(workspace: Path) -> None:
    """In this process, where they leave no file."""
    _run_examples(job.job, job.ScriptJob, job.Batches, step.ScriptStep)
    _run_examples(config.Recipe)
    assert not list(workspace.iterdir())


def _run_examples(*things: Any) -> None:
    """One after the other: those that come later use the names of those before."""
    names: dict[str, Any] = {}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    for thing in things:
        (examples,) = finder.find(thing, thing.__name__, globs=names)
        assert examples.examples
        assert runner.run(examples, clear_globs=False).failed == 0, thing
        names = examples.globs


@pytest.mark.parametrize("module", MODULES)
def test_every_public_function_says_what_it_does(module: str) -> None:
    """And those of `lockstep.weights` show it."""
    for name in import_module(module).__all__:
        thing = getattr(import_module(module), name)
        assert inspect.getdoc(thing), name
        if module == "lockstep.weights":
            assert ">>> " in str(inspect.getdoc(thing)), name


def test_the_list_is_complete() -> None:
    assert {*lockstep.__all__} <= {*dir(lockstep)}
    with pytest.raises(AttributeError, match="has no attribute 'trane'"):
        getattr(lockstep, "trane")  # noqa: B009 - mypy sees the other way


if __name__ == "__main__":
    LIST.write_text(described())
