"""The data of a run that goes on or is evaluated: where they lie now, which the bits do not depend on, and whether they
are the same, which what the run has recorded of them tells."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep import inputs, references
from lockstep.config import Data, Recipe
from lockstep.data import EMBEDDED, description, keys, meanimage, own, paths
from lockstep.errors import UserError
from lockstep.request import Request
from lockstep.supervisor.plan import Plan

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


def check_same(plan: Plan, is_told: bool) -> str | None:
    """Refuse other data than those that a run was computed from, also where it has not been told of a place; of a run
    that is only evaluated the training set does not count then. A note where sizes are all that could be compared."""
    directory, dataset, data = plan.directory, plan.dataset, plan.recipe.data
    if dataset.is_gone:  # only the script knows
        return None
    before = inputs.behind(inputs.read(directory.read_json("environment.json")), plan.first_step)
    if plan.job.allow_mixed and references.is_reference(data.source):
        before = {}  # what the user's code makes of them may depend on libraries, and arithmetic may differ
    now = dataset.fingerprints() | meanimage.fingerprint(data)
    stored = description.from_plain(directory.read_json("dataset.json"))
    for name, (title, key) in SETS.items():
        if name == "train" and plan.first_step == plan.last_step and not is_told:
            continue
        size = len(getattr(dataset, name))
        was = size if stored is None else getattr(stored, f"{name}_size")
        if now.get(name) == before[name] if name in before else size == was:
            continue
        place, option = (data.path, "--data") if getattr(data, key) is None else (getattr(data, key), OPTIONS[key])
        sizes = "" if size == was else f", which had {was} samples where this one has {size}"
        raise _other(plan, f"the {title} in {place or data.source}", sizes, option if is_told else None)
    if now.get("mean_image") != before.get("mean_image", now.get("mean_image")):
        raise _other(plan, f"the mean image {data.mean_image}", "", None)
    if set(before) >= set(SETS) or not is_told:
        return None
    return f"{directory.name} has no checksums of its data, being older: only their sizes were compared"


def _other(plan: Plan, what: str, sizes: str, option: str | None) -> UserError:
    """What is not that of a run, and what can be done: what is left of the training, or the figures, need the same."""
    run = plan.directory.name
    if option is not None:
        return UserError(f"{what} is not that of {run}{sizes}: give the same with {option}")
    if plan.first_step == plan.last_step:
        instead = f"test it on these with `lockstep evaluate {shlex.quote(run)}`"
    else:
        instead = "start a new run" + (
            f", with --init {shlex.quote(run)} to go on from its weights" if plan.checkpoint else ""
        )
    return UserError(f"{what} is not that of {run}{sizes}: bring the same data back, or {instead}")


def check_held_out(plan: Plan, trained: Recipe, is_told: bool) -> None:
    """Refuse to call samples held out that a run was trained on; `is_told` if the data may be others than its own. In
    shards a smaller number of them are others."""
    asked, kept, run = plan.recipe.data.hold_out, trained.data.hold_out, plan.directory.name
    if asked in (0, kept) or (asked < kept and not plan.dataset.is_parted):
        return
    given = inputs.read(plan.directory.read_json("environment.json"))
    if is_told and plan.dataset.fingerprints().get("train") not in {one.data.get("train", "") for one in given}:
        return
    if not kept:
        raise UserError(
            f"{run} held out no samples, and was trained on those that would be tested: leave out --hold-out"
        )
    less = "" if plan.dataset.is_parted else " or less"
    raise UserError(f"{run} held out {kept} samples, and was trained on all others: give --hold-out {kept}{less}")


@contextlib.contextmanager
def advised(data: Data, run: str) -> Iterator[None]:
    """What cannot be opened may have gone elsewhere: say how that is told."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:  # the latter from a function of the user's own
        if data.source in EMBEDDED or (references.is_reference(data.source) and not own.takes(data.source, "path")):
            raise
        options = [f"{OPTIONS[key]} PATH" for key in KEYS.values() if key.endswith("path") and getattr(data, key)]
        command = f"lockstep resume {shlex.quote(run)} {' '.join(options or ['--data PATH'])}"
        raise UserError(f"{error}; if the data of {run} lie elsewhere now, say where: `{command}`") from None
