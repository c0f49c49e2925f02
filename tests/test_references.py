"""Code of the user's own: files and modules, found from anywhere, and refused in one sentence where they are not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep import models, references
from lockstep.config import Model
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.request import Request, find_recipe, resolve
from tests.conftest import digest_in, run

NET = """
from .parts import flat

def net(num_classes, image_shape, scale=1.0):
    return flat(num_classes, image_shape)
"""
PARTS = """
from torch import nn

def flat(num_classes, image_shape):
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, num_classes))
"""
RECIPE = """
from dataclasses import replace
from lockstep.config import Model
from lockstep.recipes.demo import demo

def mine():
    return replace(demo(), name="mine", model=Model(name="shapenets.nets:net"))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a package, as the current directory, which is not on the path of modules."""
    project = tmp_path / "project"
    package = project / "shapenets"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "nets": NET, "parts": PARTS, "recipes": RECIPE}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(project))])
    yield project
    for name in [name for name in sys.modules if name.partition(".")[0] == "shapenets"]:
        del sys.modules[name]


def refused(name: str, **options: object) -> str:
    with pytest.raises(UserError) as error:
        models.check_model(Model(name=name, options=options))
    return str(error.value)


def test_a_module_of_the_current_directory_is_imported_with_what_it_imports(project: Path) -> None:
    assert references.load("shapenets.nets:net").__module__ == "shapenets.nets"
    network = models.build(Model(name="shapenets.nets:net"), num_classes=10, image_shape=(3, 32, 32))
    assert network.get_parameter("1.weight").shape == (10, 3072)


def test_an_installed_module_is_found_and_keeps_its_name() -> None:
    model = models.with_absolute_name(Model(name="tests.alone:train"), Path())
    here = Path(__file__).parents[1]
    assert model.name in ("tests.alone:train", f"{here}/tests.alone:train")
    assert references.absolute("json.decoder:scanstring", Path("/")) == "json.decoder:scanstring"
    assert references.load("json.decoder:scanstring") is json.decoder.scanstring  # type: ignore[attr-defined]


@pytest.mark.usefixtures("project")
def test_the_stored_name_says_where_the_module_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when recipe and model are named by modules, and when the directory is given."""
    stored = f"{tmp_path}/project/shapenets.nets:net"
    assert resolve(demo(), Request(settings=["model.name=shapenets.nets:net"])).model.name == stored
    assert find_recipe("shapenets.recipes:mine").model.name == stored
    monkeypatch.chdir(tmp_path)
    assert resolve(demo(), Request(settings=["model.name=project/shapenets.nets:net"])).model.name == stored
    models.check_model(Model(name=stored))
    assert references.load(stored).__module__ == "shapenets.nets"


def test_a_model_is_looked_for_beside_the_file_of_its_recipe(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "own.py").write_text(RECIPE)
    monkeypatch.chdir("/")
    assert find_recipe(f"{project}/own.py:mine").model.name == f"{project}/shapenets.nets:net"


@pytest.mark.usefixtures("project")
def test_names_that_are_not_there_are_refused_with_the_nearest() -> None:
    assert refused("shapenet.nets:net") == (
        "there is no module 'shapenet' here or among the installed ones: did you mean 'shapenets'?"
    )
    assert "install it, or give its directory" in refused("qqqqqqqq:net")
    assert "unknown module in shapenets 'net': did you mean 'nets'?" in refused("shapenets.net:net")
    assert "no package with a module 'deeper'" in refused("shapenets.nets.deeper:net")
    assert "'nte': did you mean 'net'?" in refused("shapenets.nets:nte")
    assert "unknown option of model 'shapenets.nets:net' 'scal': did you mean 'scale'?" in refused(
        "shapenets.nets:net", scal=2
    )
    assert "unknown option" in refused("shapenets.nets:net", num_classes=2)
    assert "there is no module 'gone' in /nowhere" in refused("/nowhere/gone:net")
    assert refused("gone.py:net") == "there is no file gone.py"
    models.check_model(Model(name="shapenets.nets:net", options={"scale": 2}))


@pytest.mark.usefixtures("project")
def test_checking_imports_nothing() -> None:
    """The command does not need what the model needs, and broken code is the workers' to show."""
    models.check_model(Model(name="shapenets.nets:net"))
    assert "shapenets" not in sys.modules


def test_a_module_whose_name_is_taken_is_refused(project: Path) -> None:
    (project / "pytest.py").write_text("def net():\n    pass\n")
    with pytest.raises(
        UserError, match=r"pytest.py cannot be imported, since .* has the same name: rename one of them"
    ):
        references.load("pytest:net")


def test_workers_import_it_and_so_does_a_resume_from_another_directory(project: Path, tmp_path: Path) -> None:
    arguments = ["--set", "model.name=shapenets.nets:net", "--batch-size", "16", "--set", "evaluation.max_leaves=1"]
    options = ["--set", "schedule.name=constant", "--no-tensorboard", "--run", str(tmp_path / "run")]
    digest_in(run("train", "demo", *arguments, *options, "--workers", "2", "--steps", "2"))
    digest_in(run("resume", str(tmp_path / "run"), "--steps", "4", cwd=tmp_path))
    assert "shapenets" not in [path.name for path in tmp_path.iterdir()]


def test_a_file_is_imported_once_until_it_changes(tmp_path: Path) -> None:
    """A notebook may train anew under the name of a run that it has deleted."""
    file = tmp_path / "code.py"
    file.write_text("made = [1]")
    first = references.load(f"{file}:made")
    assert references.load(f"{file}:made") is first
    file.write_text("made = [2]")
    assert references.load(f"{file}:made") == [2]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("r.py:args", "r.py:args would be called without arguments, and needs first, named: name a function"),
        ("json:dumps", "json:dumps would be called without arguments, and needs obj: name a function"),
        ("r.py:number", "r.py:number is no function: it is of the type int"),
        ("os:getcwd", "os:getcwd returned str, not a lockstep.config.Recipe"),
        ("os.path:nothing", "'os' is a module, and no package with a module 'path': name what is in it as os:function"),
        (f"{'r' * 300}.py:mine", ".py cannot be read: File name too long"),
    ],
)
def test_a_name_that_gives_no_recipe_is_refused(workspace: Path, name: str, sentence: str) -> None:
    Path("r.py").write_text("number = 3\ndef args(first, *rest, named, other=1, **more): ...\n")
    with pytest.raises(UserError) as error:
        find_recipe(name)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("import no_such_module\n", ["line 1, in <module>", "No module named 'no_such_module'"]),
        ("def mine(:\n", ["line 1\n", "SyntaxError: invalid syntax"]),
        ("def mine():\n    return 1 / 0\n", ["line 2, in mine", "ZeroDivisionError: division by zero"]),
    ],
)
@pytest.mark.parametrize("name", ["broken.py:mine", "broken:mine"])
def test_an_error_in_a_recipe_is_shown_from_the_users_code_on(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, source: str, shown: list[str], name: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("broken.py").write_text(source)
    with pytest.raises(UserError) as error:
        find_recipe(name)
    sys.modules.pop("broken", None)
    first, *_, last = str(error.value).splitlines()
    assert first == f"{name} cannot be used, because of an error in this code:"
    assert last.endswith(shown[-1])
    files = [line for line in str(error.value).splitlines() if line.startswith("  File ")]
    assert len(files) == 1
    assert f"{workspace}/broken.py" in files[0]
    assert shown[0].strip() in files[0]
