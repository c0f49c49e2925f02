"""What a run is given beyond its recipe: data, and code of the user's own, known by their checksums. Pure.

`environment.json` has them as `inputs`: a list whose first entry is that of step 0; a resumed session that comes with
other code adds one (other data are refused, see `lockstep.moving`). Who computes the checksums is
`lockstep.data.fingerprint` and `lockstep.owncode`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from lockstep import runcode
from lockstep.config import Recipe


@dataclass(frozen=True)
class Inputs:
    """What counts from a step on."""

    step: int
    data: dict[str, str] = field(default_factory=dict)
    """By "train", "test" and "mean_image"; what cannot be told is left out."""
    is_drawn: bool = False
    """Whether the seed has a part in which samples there are."""
    code: dict[str, str] = field(default_factory=dict)
    """Of the files in which the recipe's own functions are, by "model", "data", "loss" and "metric"."""


def own_code(recipe: Recipe) -> dict[str, str]:
    """The functions of the user's own that count, by what they are for; a script is its own checksum."""
    return {} if recipe.script is not None else runcode.names(recipe)


def read(environment: Any) -> tuple[Inputs, ...]:
    """From `environment.json`; nothing for runs that are older."""
    found = environment.get("inputs", []) if isinstance(environment, dict) else []
    try:
        return msgspec.convert(found, tuple[Inputs, ...])
    except msgspec.ValidationError:
        return ()


def to_plain(given: tuple[Inputs, ...]) -> list[dict[str, Any]]:
    return [asdict(one) for one in given]


def followed(before: tuple[Inputs, ...], now: Inputs) -> tuple[Inputs, ...]:
    """The whole course, when a session goes on from a step. What came after it is done again."""
    kept = tuple(one for one in before if one.step < now.step)
    is_same = bool(kept) and _without_step(kept[-1]) == _without_step(now)
    return kept if is_same else (*kept, now)


def behind(given: tuple[Inputs, ...], step: int) -> dict[str, str]:
    """The checksums of the data that the state of a step was computed from, as far as they are known; those of the
    start for step 0."""
    known = [one for one in given if one.step <= step]
    before = [one for one in known if one.step < step]
    return dict((before or known)[-1].data) if known else {}


def course(given: tuple[Inputs, ...], kind: str, name: str) -> tuple[tuple[int, str], ...] | None:
    """Which checksums one thing had, each with the step from which on; None if not all of the run is known."""
    if not given or given[0].step > 0:
        return None
    found: list[tuple[int, str]] = []
    for one in given:
        checksum = getattr(one, kind).get(name)
        if checksum is None:
            return None
        if not found or found[-1][1] != checksum:
            found.append((one.step, checksum))
    return tuple(found)


def changed(given: tuple[Inputs, ...]) -> list[str]:
    """What of the code is not what it was when the run began, by what it is for; nothing where that is not known."""
    if not given or given[0].step > 0:
        return []
    first, last = given[0].code, given[-1].code
    return [role for role, checksum in last.items() if first.get(role, checksum) != checksum]


def comparable(given: tuple[Inputs, ...]) -> list[dict[str, Any]]:
    """What runs that differ in the seed alone have in common: not the samples that were drawn by it."""
    plain = to_plain(given)
    return [entry | {"data": {}} if entry["is_drawn"] else entry for entry in plain]


def _without_step(one: Inputs) -> dict[str, Any]:
    return {key: value for key, value in asdict(one).items() if key != "step"}
