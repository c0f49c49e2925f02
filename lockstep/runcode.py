"""Code that lies in the directory of a run, below `code/`: definitions of a notebook or a script that were passed as
objects. How they are written down is in `lockstep.extraction`.

`config.json` names it from the run's directory, which can be moved; everywhere else the name is absolute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lockstep import references
from lockstep.config import Recipe

FILES = {"model": "code/cell.py", "data": "code/data.py", "loss": "code/loss.py", "metric": "code/metric.py"}
"""A file for each of them, so that a run can have the model of another run and data of its own."""
MARK = "# Written by Lockstep"
"""How such a file begins."""


def placed(recipe: Recipe, directory: Path) -> tuple[Recipe, dict[str, str]]:
    """The recipe of a run whose directory this is, and the code that belongs there: what was written by Lockstep goes
    along, since whoever has written it may go. Files of users stay where they are."""
    written = {kind: source for kind, source in _files(recipe).items() if is_written(source)}
    code = {kind: source.read_text(encoding="utf-8") for kind, source in written.items()}
    return _moved(recipe, {kind: str(_inside(directory, kind)) for kind in written}), code


def write(directory: Path, code: Mapping[str, str]) -> None:
    for kind, text in code.items():
        file = directory / FILES[kind]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def with_relative_names(recipe: Recipe, directory: Path) -> Recipe:
    """As it is stored."""
    inside = [kind for kind, source in _files(recipe).items() if source == _inside(directory, kind)]
    return _moved(recipe, {kind: FILES[kind] for kind in inside})


def with_absolute_names(recipe: Recipe, directory: Path) -> Recipe:
    """As it is used."""
    inside = [kind for kind, name in names(recipe).items() if name.startswith(f"{FILES[kind]}:")]
    return _moved(recipe, {kind: str(_inside(directory, kind)) for kind in inside})


def with_names_of_same(recipe: Recipe, directory: Path) -> Recipe:
    """Where the run has the same code already, the recipe with the run's names for it."""
    _, code = placed(recipe, directory)
    there = {kind: _inside(directory, kind) for kind in code}
    same = {kind for kind, file in there.items() if file.is_file() and file.read_text(encoding="utf-8") == code[kind]}
    return _moved(recipe, {kind: str(there[kind]) for kind in same})


def with_contents(recipe: Recipe) -> Recipe:
    """With checksums in the place of paths, to compare what runs have trained and not where they lie."""
    written = {kind: source for kind, source in _files(recipe).items() if is_written(source)}
    checksums = {kind: hashlib.sha256(source.read_bytes()).hexdigest()[:12] for kind, source in written.items()}
    return _moved(recipe, {kind: f"{FILES[kind]} {checksum}" for kind, checksum in checksums.items()})


def is_written(source: Path) -> bool:
    """Whether a file is there, and Lockstep has written it."""
    try:
        with source.open(encoding="utf-8") as file:
            return file.readline().startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False


def names(recipe: Recipe) -> dict[str, str]:
    """The functions of the user's own that a recipe names, by what they are for."""
    named = {"model": recipe.model.name, "data": recipe.data.source, "loss": recipe.loss, "metric": recipe.metric or ""}
    return {kind: name for kind, name in named.items() if references.is_reference(name)}


def _inside(directory: Path, kind: str) -> Path:
    return (directory / FILES[kind]).resolve()


def _files(recipe: Recipe) -> dict[str, Path]:
    """Those that the recipe names by their paths."""
    places = {kind: name.rpartition(":")[0] for kind, name in names(recipe).items()}
    return {kind: Path(where) for kind, where in places.items() if where.endswith(".py")}


def _moved(recipe: Recipe, places: Mapping[str, str]) -> Recipe:
    """With the same functions of other files."""
    old = names(recipe)
    new = {kind: f"{where}:{old[kind].rpartition(':')[2]}" for kind, where in places.items()}
    return replace(
        recipe,
        model=replace(recipe.model, name=new.get("model", recipe.model.name)),
        data=replace(recipe.data, source=new.get("data", recipe.data.source)),
        loss=new.get("loss", recipe.loss),
        metric=new.get("metric", recipe.metric),
    )
