"""What a RUN on the command line means."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.request import Request, resolve
from lockstep.rundirectory import RunDirectory, awaited, existing, for_new_run


def make_run(path: str, age: int = 0) -> RunDirectory:
    """A run that was started so many seconds ago."""
    directory = RunDirectory(Path(path))
    (directory.path / "checkpoints").mkdir(parents=True)
    (directory.path / "logs").mkdir()
    directory.write_config(demo(), Job(workers=1))
    started = 1e9 - age
    os.utime(directory.path / "config.json", (started, started))
    return directory


@pytest.fixture
def three(workspace: Path) -> Path:
    for age, name in enumerate(("demo-2", "other", "demo-1")):
        make_run(f"runs/{name}", age)
    return workspace


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("last", "demo-2"),
        ("last~0", "demo-2"),
        ("last~", "other"),
        ("last~1", "other"),
        ("last~2", "demo-1"),
        ("demo-1", "demo-1"),
        ("runs/other", "other"),
    ],
)
def test_runs_are_counted_back_from_the_last(run: str, name: str) -> None:
    assert existing(run).name == name


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("last~3", "there is no run last~3: there are 3 runs in runs/, and the oldest is last~2"),
        ("demo-2x", "unknown run 'demo-2x': did you mean 'demo-2'?"),
        ("runs/demo-2x", "there is no run runs/demo-2x; did you mean 'runs/demo-2'?"),
        ("Last", "unknown run 'Last': did you mean 'last'?"),
        ("LAST~1", "unknown run 'LAST~1': did you mean 'last~1'?"),
        ("lst", "unknown run 'lst': did you mean 'last'?"),
        ("last~x", "unknown run 'last~x': give `last`, or `last~1` for the one before"),
        ("last~-1", "unknown run 'last~-1': give `last`, or `last~1` for the one before"),
        ("test", "unknown run 'test': known are demo-1, demo-2, other"),
    ],
)
def test_a_run_that_is_not_there(run: str, sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        existing(run)
    assert sentence in str(raised.value)


def test_counting_back_with_one_run_and_with_none(workspace: Path) -> None:
    with pytest.raises(UserError, match="there is no run in runs/ yet"):
        existing("last~1")
    make_run("runs/only")
    with pytest.raises(UserError, match=r"there is one run in runs/, and the oldest is last$"):
        existing("last~1")


@pytest.mark.parametrize("name", ["last", "last~1"])
def test_no_run_can_have_a_name_that_means_another_one(workspace: Path, name: str) -> None:
    with pytest.raises(UserError, match="choose another name"):
        for_new_run(name, "demo")
    assert for_new_run("last-1", "demo").name == "last-1"


def test_no_run_is_named_so_that_it_looks_like_an_option(workspace: Path) -> None:
    """But one that is there can be continued."""
    for name in ("-1", "--run"):
        with pytest.raises(UserError, match=f"^a run called {name} would look like an option: choose another name"):
            for_new_run(name, "demo")
    make_run("runs/-1")
    assert for_new_run("-1", "demo").exists()
    assert for_new_run(None, "(a) b").name == "a-b-1"
    for name in ("", "-", "?!"):
        with pytest.raises(UserError, match=r"^no run can be named after the recipe .*: choose a name with --run"):
            for_new_run(None, name)


@pytest.mark.parametrize("name", ["", " ", "-x", "--help"])
def test_a_recipe_that_begins_has_a_name_that_its_runs_can_have(name: str) -> None:
    with pytest.raises(
        UserError, match=r"^a recipe's name is that of its runs, and '.*' cannot be: set another `name`"
    ):
        resolve(demo(), Request(settings=[f"name={name}"]))


def test_a_resize_is_remembered_and_makes_no_run_the_last(three: Path) -> None:
    """`last` is the run that was started or resumed last, whatever has been written to another since."""
    one = existing("demo-1")
    recipe, job = one.read_config()
    one.write_workers(3)
    assert one.read_config() == (recipe, replace(job, workers=3))
    assert existing("last").name == "demo-2"


@pytest.mark.parametrize("name", ["", " ", ".", "..", "./", "../..", "/", "runs/", "runs/../runs", "here/.."])
def test_a_run_is_never_where_other_files_are(workspace: Path, name: str) -> None:
    """Such as `--run "$RUN"` where the variable is not set."""
    with pytest.raises(UserError, match=r"the name of the run is empty|is no place of its own for a run"):
        for_new_run(name, "demo")
    for place in ("runs/runs", "../beside", "runs"):  # the last one is a name, and means runs/runs
        assert for_new_run(place, "demo").path.name in place


def test_an_empty_name_means_no_run(workspace: Path) -> None:
    make_run("runs/demo-1")
    for look in (existing, lambda run: awaited(run, print)):
        with pytest.raises(UserError, match="the name of the run is empty"):
            look("")
