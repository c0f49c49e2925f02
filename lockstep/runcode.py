"""Code that lies in the directory of a run, as `code/cell.py`: definitions of a notebook or a script that were passed
as objects. How they are written down is in `lockstep.extraction`.

`config.json` names it from the run's directory, which can be moved; everywhere else the name is absolute.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from lockstep import references
from lockstep.config import Recipe

FILE = "code/cell.py"
MARK = "# Written by Lockstep"
"""How such a file begins."""


def placed(recipe: Recipe, directory: Path) -> tuple[Recipe, str | None]:
    """The recipe of a run whose directory this is, and the code that belongs there: what was written by Lockstep goes
    along, since whoever has written it may go. Files of users stay where they are."""
    source = _file(recipe)
    if source is None or not _is_written(source):
        return recipe, None
    return _named(recipe, (directory / FILE).resolve()), source.read_text(encoding="utf-8")


def write(directory: Path, code: str | None) -> None:
    if code is not None:
        (directory / FILE).parent.mkdir(parents=True, exist_ok=True)
        (directory / FILE).write_text(code, encoding="utf-8")


def with_relative_name(recipe: Recipe, directory: Path) -> Recipe:
    """As it is stored."""
    is_inside = _file(recipe) == (directory / FILE).resolve()
    return _named(recipe, Path(FILE)) if is_inside else recipe


def with_absolute_name(recipe: Recipe, directory: Path) -> Recipe:
    """As it is used."""
    is_inside = recipe.model.name.startswith(f"{FILE}:")
    return _named(recipe, (directory / FILE).resolve()) if is_inside else recipe


def with_name_of_same(recipe: Recipe, directory: Path) -> Recipe:
    """If the run has the same code already, the recipe with the run's name for it."""
    moved, code = placed(recipe, directory)
    there = directory / FILE
    return moved if code is not None and there.is_file() and there.read_text(encoding="utf-8") == code else recipe


def with_contents(recipe: Recipe) -> Recipe:
    """With the checksum in the place of the path, to compare what runs have trained and not where they lie."""
    source = _file(recipe)
    if source is None or not source.is_file() or not _is_written(source):
        return recipe
    return _named(recipe, Path(f"{FILE} {hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"))


def _file(recipe: Recipe) -> Path | None:
    """The file that the model is in, if it is one by its name."""
    where = recipe.model.name.rpartition(":")[0]
    return Path(where) if references.is_reference(recipe.model.name) and where.endswith(".py") else None


def _is_written(source: Path) -> bool:
    try:
        with source.open(encoding="utf-8") as file:
            return file.readline().startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False


def _named(recipe: Recipe, where: Path) -> Recipe:
    name = recipe.model.name.rpartition(":")[2]
    return replace(recipe, model=replace(recipe.model, name=f"{where}:{name}"))
