"""`--set key=value`: any setting of a recipe by its dotted name; and those in which two recipes differ."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from lockstep.config import Recipe
from lockstep.configfile import recipe_from_plain
from lockstep.errors import UserError, unknown


def with_settings(recipe: Recipe, settings: list[str]) -> Recipe:
    """Apply `key=value` settings, such as `schedule.lr=0.2`; a key below `model` may name an option of the model."""
    plain = dataclasses.asdict(recipe)
    for setting in sorted(settings, key=lambda one: not one.startswith("model.name=")):
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, such as schedule.lr=0.2, not {setting!r}")
        _set_path(plain, key.strip().split("."), _parse_value(text.strip()), key)
        if key.strip() in ("steps", "epochs"):  # a length replaces the other one
            plain["epochs" if key.strip() == "steps" else "steps"] = None
        if key.strip() == "model.name" and plain["model"]["name"] != recipe.model.name:  # the options were the other's
            plain["model"]["options"] = {}
    return recipe_from_plain(plain, "--set" if settings else f"recipe {recipe.name}")


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _set_path(plain: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    if path[0] == "model" and len(path) == 2 and path[1] not in plain["model"]:
        path = ["model", "options", path[1]]
    target = plain
    for part in path[:-1]:
        if not isinstance(target.get(part), dict):
            raise unknown("key", key, known_keys(plain))
        target = target[part]
    is_option = path[:-1] == ["model", "options"]
    if path[-1] not in target and not is_option:
        raise unknown("key", key, known_keys(plain))
    if isinstance(target.get(path[-1]), dict):
        raise UserError(f"--set {key}: this is a group of settings, name one of {', '.join(sorted(target[path[-1]]))}")
    target[path[-1]] = value


def known_keys(plain: dict[str, Any], prefix: str = "") -> list[str]:
    """Every key that `--set` takes, with dots."""
    keys = []
    for name, value in plain.items():
        keys += known_keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return keys


MAY_DIFFER = ("steps", "epochs", "stop_at", "init_sha256", "script.sha256", "script.start_digest")


def ignored(stored: Recipe, asked: Recipe) -> list[str]:
    """The stored configuration wins on resume; say so where the command says something else."""

    def flat(value: Any, prefix: str = "") -> dict[str, Any]:
        if not isinstance(value, dict):
            return {prefix[:-1]: value}
        return {key: leaf for name, inner in value.items() for key, leaf in flat(inner, f"{prefix}{name}.").items()}

    old, new = flat(dataclasses.asdict(stored)), flat(dataclasses.asdict(asked))
    return [
        f"the stored configuration wins: {key} stays {_as_typed(old[key])}, {_as_typed(new[key])} is ignored"
        for key in old
        if new.get(key) is not None and old[key] != new[key] and key not in MAY_DIFFER  # None asks for nothing
    ]


def _as_typed(value: Any) -> str:
    """A script's arguments as in its command, other lists as `--set` takes them."""
    if not isinstance(value, tuple):
        return repr(value)
    return shlex.join(value) or "(none)" if all(isinstance(one, str) for one in value) else json.dumps(value)
