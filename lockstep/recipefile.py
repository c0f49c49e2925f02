"""Recipes in files: TOML or JSON, whole or as changes to a `base`, and the configuration of a run.

What a file may hold is what `lockstep config` prints. Paths in it start from the file's own directory.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lockstep import initial, references, runcode
from lockstep.config import Recipe
from lockstep.configfile import from_plain, recipe_from_plain
from lockstep.data import paths
from lockstep.errors import UserError, nearest, unknown
from lockstep.settings import known_keys

SUFFIXES = (".toml", ".json")
DATA_PATHS = ("path", "eval_path", "label_path", "eval_label_path", "mean_image")
Key = tuple[str, ...]
"""The name of a key, after those of the tables that it is in."""
Find = Callable[[str, tuple[Path, ...]], Recipe]
"""How a `base` is found; the second argument are the files that have led there."""


def is_file(name: str) -> bool:
    """Whether a RECIPE means a file, there or not, or the directory of a run."""
    return name.endswith(SUFFIXES) or (("/" in name or Path(name).is_dir()) and ":" not in name)


def load(name: str, find: Find, above: tuple[Path, ...] = ()) -> Recipe:
    """The recipe in a file, or that of the run in a directory; `find` finds what `base` names."""
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise UserError(f"{name} is no recipe: it is a directory, and not that of a run")
    text = _read(path)
    plain = _parse(path, text)
    if "recipe" in plain and "job" in plain:
        return runcode.with_absolute_names(from_plain(plain, str(path))[0], path.parent)
    return _Reader(path, text).recipe(plain, lambda base: find(base, (*above, path.resolve())), above)


def _read(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        what = str(path) if path.exists() else f"there is no run and no file {path}"
        raise UserError(f"{what}: a file with a recipe ends in .toml or .json, or is named as file.py:function")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = [one.name for one in path.parent.glob("*") if one.suffix in SUFFIXES] if path.parent.is_dir() else []
        close = nearest(path.name, beside)
        hint = f": did you mean {str(path.parent / close)!r}?" if close is not None else ""
        raise UserError(f"there is no file {path}{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


class _Twice(Exception):  # noqa: N818
    """A key that a table has already."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON, of which Python would keep the last of several values without a word."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(key)
        found[key] = value
    return found


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        plain = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=_once)
    except _Twice as error:
        raise UserError(f"{path} has the key {str(error)!r} twice in one table: keep one of them") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:  # both say line and column
        raise UserError(f"{path} is not {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(plain, dict):
        raise UserError(f"{path} holds no table with the keys of a recipe: see `lockstep config demo`")
    return plain


class _Reader:
    """One file, and what is wrong with it, with line numbers."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._directory = path.resolve().parent
        self._lines = dict(_lines_of_toml(text) if path.suffix == ".toml" else _lines_of_json(text))

    def recipe(self, plain: dict[str, Any], find: Callable[[str], Recipe], above: tuple[Path, ...]) -> Recipe:
        if self._path.resolve() in above:
            raise self._error(("base",), "base leads back to this file")
        whole = dataclasses.asdict(self._base(plain.pop("base", None), find))
        whole["name"] = self._path.stem
        model = plain.get("model")
        if isinstance(model, dict) and model.get("name", whole["model"]["name"]) != whole["model"]["name"]:
            whole["model"]["options"] = {}  # the options of one model mean nothing to another one
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if one in plain and other not in plain:
                whole[other] = None
        self._merge(whole, plain, ())
        self._place(whole, plain)
        return self._convert(whole)

    def _base(self, base: Any, find: Callable[[str], Recipe]) -> Recipe:
        if base is None:
            return Recipe(name="")
        if not isinstance(base, str):
            raise self._error(("base",), "base is the name of a recipe, or a file")
        if references.is_reference(base):
            return find(references.absolute(base, self._directory))
        return find(str(self._directory / base) if is_file(base) else base)

    def _merge(self, whole: dict[str, Any], changes: dict[str, Any], above: Key) -> None:
        for key, value in changes.items():
            path = (*above, key)
            if path[:-1] == ("model",) and key not in whole:
                whole["options"][key] = value  # as in --set model.depth=32
            elif key not in whole and path[:-1] != ("model", "options"):
                known = known_keys(dataclasses.asdict(Recipe(name="")))
                raise self._error(path, str(unknown("key", ".".join(path), known)))
            elif isinstance(whole.get(key), dict):
                if not isinstance(value, dict):
                    raise self._error(path, f"{'.'.join(path)} is a table of settings, not {value!r}")
                self._merge(whole[key], value, path)
            else:
                whole[key] = value

    def _convert(self, whole: dict[str, Any]) -> Recipe:
        try:
            return recipe_from_plain(whole, "")
        except UserError as error:  # it names the key: `at `schedule.lr`` or `value of schedule.name`
            message = str(error).removeprefix(": ")
            key = re.search(r"(?:at `|value of )([\w.]+)", message)
            raise self._error(tuple(key[1].split(".")) if key else (), message) from None

    def _place(self, whole: dict[str, Any], plain: dict[str, Any]) -> None:
        """Paths that this file names start where it lies, and must be found from anywhere."""
        for table, key in ((("model",), "name"), (("data",), "source"), ((), "loss"), ((), "metric")):
            given, inside = plain, whole
            for part in table:
                given, inside = given.get(part, {}), inside[part]
            if key in given and references.is_reference(str(inside[key])):
                inside[key] = references.absolute(inside[key], self._directory)
        if isinstance(init := plain.get("init"), str):
            whole["init"], whole["init_sha256"] = self._start(init), plain.get("init_sha256")
        for key in DATA_PATHS:
            if isinstance(text := plain.get("data", {}).get(key), str):
                whole["data"][key] = paths.placed(text, self._directory)

    def _start(self, init: str) -> str:
        """A file of weights, or a run by its directory; a mere name that is neither here is that of a run."""
        path = self._directory / Path(init.strip()).expanduser()
        is_name = Path(init).name == init and not init.startswith("~") and path.suffix not in initial.SUFFIXES
        return init if is_name and not path.exists() else str(path)

    def _error(self, path: Key, sentence: str) -> UserError:
        line = self._lines.get(path)
        return UserError(f"{self._path}{f', line {line}' if line is not None else ''}: {sentence}")


def _lines_of_toml(text: str) -> Iterator[tuple[Key, int]]:
    """Where keys stand; those in inline tables are found at the line of the table."""
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _names(header[1])
            yield table, number
        elif key := re.match(r"""\s*([\w.\s"'-]+?)\s*=""", line):
            yield (*table, *_names(key[1])), number
            for inner in re.finditer(r"[{,]\s*([\w-]+)\s*=", line):
                yield (*table, *_names(key[1]), inner[1]), number


def _names(dotted: str) -> Key:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _lines_of_json(text: str) -> Iterator[tuple[Key, int]]:
    """Where keys stand, by the braces before them; braces inside of texts would only give a wrong line."""
    above: list[str] = []
    key = ""
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"\s*:|"(?:[^"\\]|\\.)*"|[{}]', text):
        if match[0] == "{":
            above.append(key)
        elif match[0] == "}":
            above[-1:] = []
        elif match[1] is not None:
            key = match[1]
            yield (*above[1:], key), text.count("\n", 0, match.start()) + 1
