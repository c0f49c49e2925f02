"""Configuration: settings, checks, and the way to JSON and back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from lockstep.check import check_new, check_recipe, check_workers
from lockstep.config import Data, Group, Job, Model, Optimizer, Recipe, Schedule, Script
from lockstep.configfile import from_plain, to_plain
from lockstep.errors import UserError
from lockstep.recipes import RECIPES
from lockstep.recipes.classic import resnet20_cifar10
from lockstep.recipes.demo import demo
from lockstep.request import Request, find_recipe, resolve
from lockstep.settings import with_settings


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipes_are_valid_and_survive_json(name: str) -> None:
    recipe = RECIPES[name]()
    check_recipe(recipe)
    check_new(recipe)
    assert recipe.name == name
    assert recipe.leaf_batch >= 32
    plain = json.loads(json.dumps(to_plain(recipe, Job(workers=2))))
    assert from_plain(plain, "here") == (recipe, Job(workers=2))


def test_a_length_that_is_set_replaces_the_other() -> None:
    recipe = with_settings(demo(), ["steps=5"])
    assert (recipe.steps, recipe.epochs) == (5, None)
    assert with_settings(recipe, ["epochs=2"]).steps is None


def test_settings_reach_every_level() -> None:
    recipe = with_settings(demo(), ["schedule.lr=0.3", "model.width=8", "optimizer.nesterov=false", "data.flip=False"])
    assert (recipe.schedule.lr, recipe.model.options["width"], recipe.optimizer.nesterov) == (0.3, 8, False)
    assert recipe.data.flip is False
    assert with_settings(demo(), ["data.flip=alternate"]).data.flip == "alternate"


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
        ("nothing.at.all=1", "unknown key"),
        ('optimizer.groups=[{"match": "*", "lrr": 1}]', "unknown key 'lrr': did you mean 'lr'"),
    ],
)
def test_wrong_settings_are_explained(setting: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        with_settings(demo(), [setting])


def names_of(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Every key that takes names, with one of them."""
    for key, annotation in get_type_hints(cls).items():
        if isinstance(annotation, type) and is_dataclass(annotation):
            yield from ((f"{key}.{below}", name) for below, name in names_of(annotation))
        for one in (annotation, *get_args(annotation)):
            if get_origin(one) is Literal:
                yield key, get_args(one)[-1]


NAMES = dict(names_of(Recipe))


@pytest.mark.parametrize("key", NAMES)
def test_a_mistyped_name_gets_the_nearest_and_the_known_ones(key: str, workspace: Path) -> None:
    """For every setting whose value is a name, by --set, in TOML and in JSON."""
    wrong = f"{NAMES[key]}x"
    sentence = rf"unknown value of {re.escape(key)} '{wrong}': did you mean '{NAMES[key]}'\? known are .*{NAMES[key]}"
    with pytest.raises(UserError, match=f"^--set: {sentence}"):
        with_settings(demo(), [f"{key}={wrong}"])
    (workspace / "a.toml").write_text(f'base = "demo"\n{key} = "{wrong}"\n')
    with pytest.raises(UserError, match=f"^a.toml, line 2: {sentence}"):
        find_recipe("a.toml")
    table, _, name = key.rpartition(".")
    inner = f'{{\n"{name}": "{wrong}"}}'
    (workspace / "a.json").write_text(f'{{"{table}": {inner}}}' if table else inner)
    with pytest.raises(UserError, match=f"^a.json, line 2: {sentence}"):
        find_recipe("a.json")


def test_the_settings_that_are_names_are_found() -> None:
    """The control of the test above."""
    assert NAMES.keys() >= {"optimizer.name", "optimizer.decay", "schedule.name", "schedule.warmup_unit", "precision"}
    assert NAMES.keys() >= {"data.policy", "data.flip", "evaluation.views", "device", "better"}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("schedule.name=linear", "'linear': .*known are constant, cosine, step, triangular$"),
        ("precision=16", "unknown value of precision '16': .*known are bf16, fp32, tf32$"),
        ("precision=null", "unknown value of precision 'None'"),
        ("data.flip=sometimes", "known are alternate, false, true$"),
        ("data.flip=tru", "did you mean 'true'"),
        ('data.policy=["rand"]', "known are none, rand, trivial$"),
    ],
)
def test_what_is_no_name_gets_the_known_ones(setting: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        with_settings(demo(), [setting])


def test_a_name_of_the_job_in_a_configuration_is_checked_too() -> None:
    plain = to_plain(demo(), Job(workers=1))
    plain["job"]["outer"] = "nestrov"
    with pytest.raises(UserError, match=r"^here: unknown value of outer 'nestrov': did you mean 'nesterov'\?"):
        from_plain(plain, "here")


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
        ({"data": Data(crop_padding=-1)}, r"data\.crop_padding must not be negative"),
        ({"data": Data(cutout=-2)}, r"data\.cutout must not be negative"),
        ({"data": Data(prefetch=-1)}, r"data\.prefetch must not be negative"),
        ({"data": Data(shift=1.0)}, "fraction of the side"),
        ({"data": Data(shift=math.nan)}, "fraction of the side"),
        ({"data": Data(erase=1.5)}, "a probability"),
        ({"data": Data(mixup=-0.1)}, r"data\.mixup must be 0 or a positive number"),
        ({"data": Data(cutmix=math.inf)}, r"data\.cutmix must be 0 or a positive number"),
        ({"data": Data(mixup=0.2), "global_batch": 4}, "a leaf has only one"),
        ({"schedule": Schedule(boundaries=(float("nan"),), factors=(1.0,))}, "finite"),
        ({"schedule": Schedule(boundaries=(0.5,), factors=(-1.0,))}, "none of them negative"),
        ({"schedule": Schedule(boundaries=(-5.0,), factors=(1.0,))}, "none of them negative"),
        ({"schedule": Schedule(warmup=-1)}, "warm-up must not be negative"),
        ({"schedule": Schedule(warmup_from=-1)}, "warmup_from"),
        ({"schedule": Schedule(scale_warmup=-1)}, "scale_warmup"),
        ({"schedule": Schedule(final=-0.1)}, "final factor"),
        ({"schedule": Schedule(name="triangular", peak=1.5)}, "peak at 1.5 fraction is not inside the run: it has 1"),
        ({"schedule": Schedule(name="triangular", peak=8, unit="epochs")}, "it has 7"),
        ({"schedule": Schedule(name="triangular", peak=-1, unit="steps")}, "peak"),
        ({"schedule": Schedule(name="triangular", warmup=0.1)}, "rises by itself"),
        ({"optimizer": Optimizer(momentum=1.0)}, r"momentum must be in \[0, 1\)"),
        ({"optimizer": Optimizer(momentum=0.0, nesterov=True)}, "Nesterov"),
        ({"optimizer": Optimizer(name="adamw", momentum_correction=False)}, "only with the optimizer sgd"),
        ({"optimizer": Optimizer(betas=(0.9, 1.0))}, "betas"),
        ({"optimizer": Optimizer(groups=(Group(match="x", orthogonal=True),))}, "only the optimizer muon"),
        ({"optimizer": Optimizer(name="adamw", groups=(Group(match="x", momentum=0.9),))}, "no momentum"),
        ({"optimizer": Optimizer(groups=(Group(match="x", lr=-1.0),))}, "must not be negative"),
        ({"optimizer": Optimizer(groups=(Group(match="x", weight_decay=math.inf),))}, "decay of 'x' must be finite"),
        ({"epochs": 1e308}, "the number of epochs must be at most 1,000,000,000, not 1e"),
        ({"epochs": None, "steps": 10**19}, "the number of steps must be at most"),
        ({"data": Data(mixup=0.2), "global_batch": 8, "scale": 0.5}, "a leaf has only one"),
        ({"scale": 1e300}, "at most a million"),
        ({"optimizer": Optimizer(epsilon=0.0)}, "epsilon"),
        ({"optimizer": Optimizer(weight_decay=float("nan"))}, "weight decay"),
        ({"optimizer": Optimizer(clip_norm=-1.0)}, "clip_norm"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"average": 1.0}, "average"),
        ({"average": float("nan")}, "average"),
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"scale": float("inf")}, "scale must be a positive number"),
        ({"scale": 1.3}, "times the scale 1.3 is 166.4"),
        ({"stop_at": 0}, "stop_at"),
    ],
)
def test_wrong_numbers_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_recipe(replace(demo(), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (Schedule(warmup=5), "a warm-up of 5 times the whole run never ends: give at most 1"),
        (Schedule(unit="steps", warmup=2, warmup_unit="fraction"), "a warm-up of 2 times the whole run"),
        (Schedule(name="step"), "the schedule step has no boundaries: give .*, or take constant"),
        (Schedule(name="step", boundaries=(0.5, 30), factors=(0.1, 0.01)), "a boundary at 30 times the whole run"),
    ],
)
def test_what_a_schedule_never_comes_to_is_refused_at_the_start(schedule: Schedule, sentence: str) -> None:
    """And not where a run has begun with it, which goes on."""
    recipe = replace(demo(), schedule=schedule)
    check_recipe(recipe)
    with pytest.raises(UserError, match=sentence):
        check_new(recipe)
    with pytest.raises(UserError, match=sentence):
        resolve(recipe, Request())
    assert resolve(recipe, Request(), has_begun=True).schedule == schedule
    check_new(replace(demo(), schedule=Schedule(warmup=1.0)))
    check_new(replace(demo(), schedule=Schedule(unit="epochs", warmup=5)))


def test_more_workers_than_leaves_are_refused() -> None:
    recipe: Recipe = replace(demo(), leaves=4)
    check_workers(recipe, 4)
    with pytest.raises(UserError, match=r"5 workers cannot share 4 leaves.* or more --leaves"):
        check_workers(recipe, 5)
    script = replace(recipe, script=Script(path="mine.py"))
    with pytest.raises(UserError, match=r"5 workers cannot share 4 leaves.* or more leaves= of job\.batches"):
        check_workers(script, 5)
    with pytest.raises(UserError, match=r"cannot be cut .* or other leaves= of job\.batches"):
        check_recipe(replace(script, global_batch=130))
    with pytest.raises(UserError, match="at least 1"):
        check_workers(recipe, 0)


def test_a_configuration_of_a_future_version_is_refused_by_name() -> None:
    plain = to_plain(demo(), Job(workers=1)) | {"version": 99}
    with pytest.raises(UserError, match=r"config\.json has format version 99"):
        from_plain(plain, "config.json")
    with pytest.raises(UserError, match="did you mean 'leaves'"):
        from_plain({"version": 1, "recipe": {"name": "x", "leafs": 4}, "job": {"workers": 1}}, "config.json")
