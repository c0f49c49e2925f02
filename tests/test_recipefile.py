"""Recipes in files: TOML, JSON, changes to a base, and the configuration of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from lockstep import owncode
from lockstep.config import Job, Recipe
from lockstep.errors import UserError
from lockstep.recipes.classic import resnet20_cifar10
from lockstep.recipes.demo import demo
from lockstep.request import Request, find_recipe, resolve
from lockstep.rundirectory import RunDirectory
from tests.conftest import RECIPE, Command, digest_in
from tests.test_rundirectory import make_run

MODEL = "from torch import nn\ndef net(num_classes, image_shape): return nn.Linear(1, 1)\n"


def test_changes_to_a_base(workspace: Path) -> None:
    Path("wide.toml").write_text(
        'base = "resnet20-cifar10"\nleaves = 8\nepochs = 3\nmodel.depth = 32\n'
        '[schedule]\nname = "cosine"\nlr = 1\n[data]\nflip = false\n'
    )
    base = resnet20_cifar10()
    recipe = find_recipe("wide.toml")
    assert (recipe.name, recipe.leaves, recipe.epochs, recipe.steps) == ("wide", 8, 3.0, None)
    assert recipe.model.options == {"depth": 32}
    assert (recipe.schedule.name, recipe.schedule.lr) == ("cosine", 1.0)
    assert recipe.data == dataclasses.replace(base.data, flip=False)
    assert (recipe.optimizer, recipe.evaluation) == (base.optimizer, base.evaluation)


def test_a_whole_recipe_has_the_defaults_for_what_it_leaves_out(workspace: Path) -> None:
    Path("own.json").write_text('{"name": "mine", "steps": 5, "data": {"source": "shapes"}}')
    assert find_recipe("./own.json") == Recipe(
        name="mine", steps=5, data=dataclasses.replace(Recipe(name="").data, source="shapes")
    )


@pytest.mark.parametrize("name", ["demo", "resnet20-cifar10"])
def test_what_config_prints_is_a_recipe(lockstep: Command, name: str) -> None:
    Path("again.json").write_text(lockstep("config", name, "--seed", "5").stdout)
    assert find_recipe("again.json") == resolve(find_recipe(name), Request(seed=5))


def test_another_model_does_not_get_the_options_of_the_base(workspace: Path) -> None:
    Path("small.toml").write_text('base = "resnet20-cifar10"\n[model]\nname = "small"\nwidth = 8\n')
    assert find_recipe("small.toml").model.options == {"width": 8}


def test_a_base_may_be_another_file_and_paths_start_from_the_file(workspace: Path) -> None:
    Path("sub/deeper").mkdir(parents=True)
    Path("sub/net.py").write_text(MODEL)
    Path("sub/first.toml").write_text(
        'base = "demo"\n[model]\nname = "net.py:net"\n[data]\nsource = "cifar10"\npath = "cifar"\n'
    )
    Path("sub/deeper/second.toml").write_text('base = "../first.toml"\nseed = 7\n')
    recipe = find_recipe("sub/deeper/second.toml")
    assert (recipe.name, recipe.seed, recipe.leaves) == ("second", 7, demo().leaves)
    assert recipe.model.name == f"{workspace.resolve()}/sub/net.py:net"
    assert recipe.data.path == f"{workspace.resolve()}/sub/cifar"


def test_every_path_of_the_data_starts_from_the_file(workspace: Path) -> None:
    """Several with commas between too, and a name with a comma in it, as --data takes them."""
    Path("sub/one,two").mkdir(parents=True)
    Path("sub/own.toml").write_text(
        'base = "demo"\n[data]\npath = "one,two, ~/a,s3://b/{0,1}.tar"\neval_path = "c,d/*.bin"\n'
        'label_path = "train.txt"\neval_label_path = "https://host/val.txt"\nmean_image = "mean.npy"\n'
    )
    data, place = find_recipe("sub/own.toml").data, f"{workspace.resolve()}/sub"
    assert data.path == f"{place}/one,two,{Path.home()}/a,s3://b/{{0,1}}.tar"
    assert data.eval_path == f"{place}/c,{place}/d/*.bin"
    assert (data.label_path, data.mean_image) == (f"{place}/train.txt", f"{place}/mean.npy")
    assert data.eval_label_path == "https://host/val.txt"


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ("base1", "base1"),
        ("last", "last"),
        ("here", "{place}/here"),
        ("weights.safetensors", "{place}/weights.safetensors"),
        ("../runs/base1", "{place}/../runs/base1"),
        ("~/base1", "{home}/base1"),
    ],
)
def test_start_weights_are_a_file_or_a_run_by_its_name(workspace: Path, init: str, found: str) -> None:
    """A name that nothing beside the file has is that of a run; a file is never looked for elsewhere."""
    Path("sub/here").mkdir(parents=True)
    Path("sub/own.toml").write_text(f'base = "demo"\ninit = "{init}"\n')
    place = f"{workspace.resolve()}/sub"
    assert find_recipe("sub/own.toml").init == found.format(place=place, home=Path.home())


def test_data_loss_and_metric_of_one_s_own_start_from_the_file_too(workspace: Path) -> None:
    Path("sub").mkdir()
    Path("sub/own.toml").write_text(
        'base = "demo"\nloss = "own.py:loss"\nmetric = "own.py:error"\n[data]\nsource = "own.py:both"\n'
    )
    recipe, place = find_recipe("sub/own.toml"), f"{workspace.resolve()}/sub/own.py"
    assert (recipe.data.source, recipe.loss, recipe.metric) == (f"{place}:both", f"{place}:loss", f"{place}:error")
    assert owncode.directories(recipe) == (workspace.resolve() / "sub",)


def test_a_base_may_be_a_function(workspace: Path) -> None:
    Path("sub").mkdir()
    Path("sub/own.py").write_text("from lockstep.recipes import RECIPES\ndef recipe(): return RECIPES['demo']()\n")
    Path("sub/own.toml").write_text('base = "own.py:recipe"\nseed = 3\n')
    assert find_recipe("sub/own.toml") == dataclasses.replace(demo(), name="own", seed=3)


def test_the_configuration_of_a_run_is_its_recipe(workspace: Path) -> None:
    recipe = dataclasses.replace(demo(), seed=9, device="cpu")
    make_run("runs/a").write_config(recipe, Job(workers=2))
    assert find_recipe("runs/a/config.json") == find_recipe("runs/a") == find_recipe("runs/a/") == recipe
    assert resolve(find_recipe("runs/a"), Request()) == recipe


def test_a_run_is_repeated_from_its_configuration(lockstep: Command) -> None:
    """The same digest, with another number of workers; a control has another seed."""
    small = ["--steps", "4", "--set", "evaluation.max_leaves=1", "--seed", "3"]
    first = digest_in(lockstep("train", *RECIPE, *small, "--workers", "2", "--run", "first"))
    assert digest_in(lockstep("train", "runs/first/config.json", "--workers", "1", "--run", "again")) == first
    assert digest_in(lockstep("train", "runs/first", "--workers", "1", "--seed", "4", "--run", "other")) != first
    recipes = [RunDirectory(Path("runs") / name).read_config()[0] for name in ("first", "again")]
    assert recipes[0] == recipes[1]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "a.toml",
            'base = "demo"\n\n[schedule]\nlrr = 1\n',
            "a.toml, line 4: unknown key 'schedule.lrr': did you mean",
        ),
        ("a.toml", 'base = "demo"\nschedule.lrr = 1\n', "line 2: unknown key 'schedule.lrr'"),
        ("a.toml", 'base = "demo"\nschedule = {lr = 1, lrr = 1}\n', "line 2: unknown key 'schedule.lrr'"),
        ("a.toml", "leafs = 4\n", "line 1: unknown key 'leafs': did you mean 'leaves'?"),
        (
            "a.toml",
            'base = "demo"\n[optimiser]\nmomentum = 0\n',
            "line 2: unknown key 'optimiser': did you mean 'optimizer",
        ),
        (
            "a.toml",
            'base = "demo"\n[optimizer]\nnesterov = 3\n',
            "line 3: Expected `bool`, got `int` - at `optimizer.nesterov`",
        ),
        ("a.toml", 'base = "demo"\nschedule = 3\n', "line 2: schedule is a table of settings, not 3"),
        ("a.toml", "leaves = \n", "is not TOML: Invalid value (at line 1, column 10)"),
        ("a.toml", 'base = "dmeo"\n', "did you mean 'demo'"),
        ("a.toml", "base = 3\n", "line 1: base is the name of a recipe, or a file"),
        ("a.toml", 'base = "a.toml"\n', "line 1: base leads back to this file"),
        ("a.toml", 'base = "b.toml"\n', "there is no file"),
        ("a.json", '{\n "base": "demo",\n "data": {\n  "flop": 1}}', "a.json, line 4: unknown key 'data.flop'"),
        ("a.json", '{\n "leaves": "x"}', "line 2: Expected `int`, got `str`"),
        ("a.json", "{,}", "is not JSON: "),
        ("a.json", "[]", "holds no table"),
        ("a.json", '{"data": {"flip": true, "flip": false}}', "a.json has the key 'flip' twice in one table: keep one"),
        ("a.json", '{"version": 9, "recipe": {}, "job": {}}', "format version 9"),
        ("a.toml", "\0", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(workspace: Path, name: str, text: str, sentence: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(UserError) as raised:
        find_recipe(name)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wide.tml/", "wide.tml: a file with a recipe ends in .toml or .json"),
        ("runs/nosuch", "there is no run and no file runs/nosuch: a file with a recipe ends in .toml or .json"),
        ("./there.yaml", "there.yaml: a file with a recipe ends in .toml or .json"),
        ("./wide.yaml", "ends in .toml or .json"),
        ("wid.toml", "there is no file wid.toml: did you mean 'wide.toml'?"),
        ("empty", "is a directory, and not that of a run"),
        ("binary.toml", "cannot be read"),
        ("wide", "unknown recipe 'wide'"),
    ],
)
def test_a_file_that_is_none(workspace: Path, name: str, sentence: str) -> None:
    Path("wide.toml").write_text("")
    Path("there.yaml").write_text("")
    Path("empty").mkdir()
    Path("binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError) as raised:
        find_recipe(name)
    assert sentence in str(raised.value)


def test_a_file_without_a_length_is_refused_when_it_is_resolved(workspace: Path) -> None:
    Path("a.json").write_text(json.dumps({"data": {"source": "shapes"}}))
    with pytest.raises(UserError, match="the recipe has no length"):
        resolve(find_recipe("a.json"), Request())
