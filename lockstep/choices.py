"""Settings whose values are names, as their types say (`Literal`): an unknown name gets the nearest and the known ones.

This is done before msgspec looks at types, whose own sentence tells neither.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lockstep.errors import UserError, unknown


def refuse_unknown_names(plain: Any, cls: type[Any], where: str, above: str = "") -> None:
    """Look at every value of `plain`, which is to become a `cls`, that has to be one of several names."""
    if not isinstance(plain, dict):
        return
    for key, annotation in get_type_hints(cls).items():
        if key not in plain:
            continue
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            refuse_unknown_names(plain[key], annotation, where, f"{above}{key}.")
        else:
            _check(plain[key], annotation, f"{above}{key}", where)


def _check(value: Any, annotation: Any, key: str, where: str) -> None:
    is_union = get_origin(annotation) in (Union, types.UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    names = [name for member in members if get_origin(member) is Literal for name in get_args(member)]
    others = tuple(member for member in members if get_origin(member) is None)
    if not names or value in names or isinstance(value, others):
        return
    known = [*names, *(("true", "false") if bool in others else ())]
    sentence = str(unknown(f"value of {key}", str(value), known))
    raise UserError(f"{where}: {sentence}" if where else sentence)
