"""`config.json`, there and back: the configuration as plain values, and the sentences for files that hold others."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from lockstep.choices import refuse_unknown_names
from lockstep.config import Group, Job, Optimizer, Recipe
from lockstep.errors import UserError, unknown

FORMAT_VERSION = 1


def to_plain(recipe: Recipe, job: Job) -> dict[str, Any]:
    """The contents of `config.json`."""
    return {"version": FORMAT_VERSION, "recipe": dataclasses.asdict(recipe), "job": dataclasses.asdict(job)}


def from_plain(plain: Any, where: str) -> tuple[Recipe, Job]:
    """Read what `to_plain` wrote, also by an older version of Lockstep."""
    if not isinstance(plain, dict) or "recipe" not in plain or "job" not in plain:
        raise UserError(f"{where} is not a Lockstep configuration: it needs the keys version, recipe and job")
    if plain.get("version") != FORMAT_VERSION:
        raise UserError(
            f"{where} has format version {plain.get('version')!r}, this Lockstep reads {FORMAT_VERSION}: "
            "use the version of Lockstep that wrote it, or a newer one"
        )
    return recipe_from_plain(plain["recipe"], where), _convert(plain["job"], Job, where)


def recipe_from_plain(plain: Any, where: str) -> Recipe:
    recipe: Recipe = _convert(plain, Recipe, where)
    return recipe


def _convert(plain: Any, cls: type[Any], where: str) -> Any:
    _refuse_unknown_keys(plain, cls, where)
    refuse_unknown_names(plain, cls, where)
    try:
        return msgspec.convert(plain, cls)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {str(error).replace('$.', '')}") from None


def _refuse_unknown_keys(plain: Any, cls: type[Any], where: str) -> None:
    if not isinstance(plain, dict):
        return
    known = {f.name: f for f in dataclasses.fields(cls)}
    for key, value in plain.items():
        if key not in known:
            raise UserError(f"{where}: {unknown('key', str(key), known)}")
        default = known[key].default
        if dataclasses.is_dataclass(default):
            _refuse_unknown_keys(value, type(default), where)
        if (cls, key) == (Optimizer, "groups") and isinstance(value, list | tuple):
            for group in value:
                _refuse_unknown_keys(group, Group, where)
