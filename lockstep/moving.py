"""Where the data of a run lie now, if that is another place than it was. The bits do not depend on it, but they must be
the same data, which what the run has recorded of them tells."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep import references
from lockstep.config import Data, Recipe
from lockstep.data import EMBEDDED, keys, own, paths
from lockstep.data.description import Description
from lockstep.data.source import Dataset
from lockstep.errors import UserError
from lockstep.inputs import Inputs
from lockstep.request import Request

KEYS = {
    "data": "path",
    "eval_data": "eval_path",
    "label_path": "label_path",
    "eval_label_path": "eval_label_path",
    "endpoint_url": "endpoint_url",
    "anonymous": "anonymous",
}
"""The keys of `data` that say where something lies, or how it is reached, by their names in a request."""
OPTIONS = {"path": "--data", "eval_path": "--eval-data", **keys.OPTIONS}
SETS = {"train": ("training set", "path"), "test": ("test set", "eval_path")}


def asked(request: Request) -> dict[str, Any]:
    """The keys that are to change, with what was asked for."""
    return {key: value for name, key in KEYS.items() if (value := getattr(request, name)) is not None}


def with_places(recipe: Recipe, request: Request, run: str) -> Recipe:
    """The recipe of a run with its data where the request says; all else stays, as samples that are held out do."""
    given, data = asked(request), recipe.data
    if not given:
        return recipe
    options = " and ".join(OPTIONS[key] for key in given)
    if recipe.script is not None:
        raise UserError(f"{recipe.script.path} finds its data by itself: leave out {options}")
    if data.source in EMBEDDED:
        raise UserError(f"{run} trains on {data.source}, which is a part of Lockstep: leave out {options}")
    for key in [key for key in ("path", "eval_path") if key in given]:
        if _is_name(given[key]):
            raise UserError(
                f"{OPTIONS[key]} says where the data of {run} lie now: give a path or URL, not {given[key]}"
            )
        if references.is_reference(data.source) and not own.takes(data.source, key):
            raise UserError(
                f"{data.source} has no parameter `{key}`, and finds its data by itself: leave out {options}"
            )
    placed: dict[str, Any] = {
        key: paths.absolute(value) if key.endswith("path") else value for key, value in given.items()
    }
    data = replace(data, **placed)
    keys.check_asked(data, set(placed))
    return replace(recipe, data=data)


def _is_name(place: str) -> bool:
    return not Path(place).exists() and (place in EMBEDDED or ("://" not in place and references.is_reference(place)))


def check_same(dataset: Dataset, data: Data, given: tuple[Inputs, ...], stored: Description | None, run: str) -> bool:
    """Refuse other data than those of the run, whose record is `given`, up to where it goes on. False if it is older
    than such records: then sizes are all that could be compared."""
    before, now = given[-1].data if given else {}, dataset.fingerprints()
    for name, (title, key) in SETS.items():
        size = len(getattr(dataset, name))
        was = size if stored is None else getattr(stored, f"{name}_size")
        if now.get(name) == before[name] if name in before else size == was:
            continue
        place, option = (data.path, "--data") if getattr(data, key) is None else (getattr(data, key), OPTIONS[key])
        sizes = "" if size == was else f", which had {was} samples where this one has {size}"
        raise UserError(
            f"the {title} in {place or data.source} is not that of {run}{sizes}: give the same with {option}"
        )
    return set(before) >= set(SETS)


@contextlib.contextmanager
def advised(data: Data, run: str) -> Iterator[None]:
    """What cannot be opened may have gone elsewhere: say how that is told."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:  # the latter from a function of the user's own
        if data.source in EMBEDDED or (references.is_reference(data.source) and not own.takes(data.source, "path")):
            raise
        options = [f"{OPTIONS[key]} PATH" for key in KEYS.values() if key.endswith("path") and getattr(data, key)]
        command = f"lockstep resume {run} {' '.join(options or ['--data PATH'])}"
        raise UserError(f"{error}; if the data of {run} lie elsewhere now, say where: `{command}`") from None
