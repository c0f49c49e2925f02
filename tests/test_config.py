"""Configuration: settings, checks, and the way to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lockstep.config import (
    Job,
    Model,
    Recipe,
    Schedule,
    check_recipe,
    check_workers,
    from_plain,
    to_plain,
    with_settings,
)
from lockstep.errors import UserError
from lockstep.recipes import RECIPES, demo, resnet20_cifar10


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipes_are_valid_and_survive_json(name: str) -> None:
    recipe = RECIPES[name]()
    check_recipe(recipe)
    assert recipe.name == name
    assert recipe.leaf_batch >= 32
    plain = json.loads(json.dumps(to_plain(recipe, Job(workers=2))))
    assert from_plain(plain, "here") == (recipe, Job(workers=2))


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_documents_command_and_accuracy(name: str) -> None:
    documentation = RECIPES[name].__doc__ or ""
    assert f"lockstep train {name}" in documentation
    assert "% top1" in documentation


def test_a_length_that_is_set_replaces_the_other() -> None:
    recipe = with_settings(demo(), ["steps=5"])
    assert (recipe.steps, recipe.epochs) == (5, None)
    assert with_settings(recipe, ["epochs=2"]).steps is None


def test_settings_reach_every_level() -> None:
    recipe = with_settings(demo(), ["schedule.lr=0.3", "model.width=8", "optimizer.nesterov=false", "data.flip=False"])
    assert (recipe.schedule.lr, recipe.model.options["width"], recipe.optimizer.nesterov) == (0.3, 8, False)
    assert recipe.data.flip is False


def test_another_model_starts_from_its_own_defaults() -> None:
    recipe = with_settings(resnet20_cifar10(), ["model.width=2", "model.name=wide-resnet"])
    assert recipe.model == Model(name="wide-resnet", options={"width": 2})
    assert with_settings(resnet20_cifar10(), ["model.name=resnet-cifar"]) == resnet20_cifar10()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("schedule.lrr=1", "did you mean 'schedule.lr'"),
        ("lr", "key=value"),
        ("schedule=1", "group of settings"),
        ("schedule.lr=fast", "float"),
        ("leaves=2.5", "int"),
        ("schedule.name=linear", "linear"),
        ("nothing.at.all=1", "unknown key"),
    ],
)
def test_wrong_settings_are_explained(setting: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        with_settings(demo(), [setting])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"leaves": 6}, "power of two"),
        ({"leaves": 0}, "power of two"),
        ({"global_batch": 130}, "take a batch size of 128"),
        ({"global_batch": 0}, "positive"),
        ({"steps": 5}, "either in steps or in epochs"),
        ({"epochs": None}, "no length"),
        ({"epochs": -1.0}, "positive"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"log_every": 0}, "log_every"),
        ({"schedule": Schedule(boundaries=(1.0,))}, "one factor per boundary"),
    ],
)
def test_wrong_numbers_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_recipe(replace(demo(), **changes))  # type: ignore[arg-type]


def test_more_workers_than_leaves_are_refused() -> None:
    recipe: Recipe = replace(demo(), leaves=4)
    check_workers(recipe, 4)
    with pytest.raises(UserError, match="5 workers cannot share 4 leaves"):
        check_workers(recipe, 5)
    with pytest.raises(UserError, match="at least 1"):
        check_workers(recipe, 0)


def test_a_configuration_of_a_future_version_is_refused_by_name() -> None:
    plain = to_plain(demo(), Job(workers=1)) | {"version": 99}
    with pytest.raises(UserError, match=r"config\.json has format version 99"):
        from_plain(plain, "config.json")
    with pytest.raises(UserError, match="did you mean 'leaves'"):
        from_plain({"version": 1, "recipe": {"name": "x", "leafs": 4}, "job": {"workers": 1}}, "config.json")
