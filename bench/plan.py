"""Measurements to be made, one by one: those that are in the ledger are passed over, and so are those for which the
time has run out. What comes out is in the ledger; what it means is for the comparisons."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ledger import Ledger
from bench.results import Result
from bench.rounds import Say

FAILED = "failed"
"""The key of an entry that is no measurement, but says why there is none."""

OURS = "Lockstep"


@dataclass(frozen=True)
class Measurement:
    """Something that is run once."""

    key: str
    who: str
    seconds: float
    """What it takes on the development machine, about."""
    run: Callable[[Path], Any]
    """In a directory that does not exist yet; returns what JSON can hold."""
    needs: str | None = None
    """A module without which it cannot be done."""


@dataclass(frozen=True)
class Comparison:
    """Some measurements, and what they come to."""

    name: str
    plan: Callable[[bool], list[Measurement]]
    """Whether quickly, to see that it works."""
    conclude: Callable[[Mapping[str, Any], bool], Result]
    """From the entries of the ledger, of which some may be missing, or say why there is no measurement. Pure."""


def carry_out(
    measurements: Sequence[Measurement],
    coming: Sequence[Measurement],
    ledger: Ledger,
    limit: float,
    where: Path,
    say: Say,
) -> None:
    """Make those that are missing; `coming` are those of all comparisons, for what the rest will take."""
    for number, one in enumerate(measurements):
        if one.key in ledger:
            continue
        reason = reason_not_to(one, ledger, limit)
        if reason is not None:
            say(f"{one.key}: {reason}")
            ledger.add(one.key, {FAILED: reason}, 0.0)
            continue
        started = time.monotonic()
        entry = _attempt(one, where / f"{number}")
        ledger.add(one.key, entry, time.monotonic() - started)
        found = entry[FAILED] if is_failure(entry) else _brief(entry)
        left = seconds_left(coming, ledger)
        say(f"{one.key}: {found}; {len(ledger.entries)} of {len(coming)}, about {left / 60:.0f} min left")


def _attempt(one: Measurement, directory: Path) -> Any:
    try:
        return one.run(directory)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        if one.who == OURS:
            raise
        return {FAILED: f"it failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"}


def reason_not_to(one: Measurement, ledger: Ledger, limit_seconds: float) -> str | None:
    """Why a measurement is not even tried."""
    if one.needs is not None and not is_there(one.needs):
        return f"{one.needs} is not installed: pip install -c constraints.txt -e '.[peers]'"
    if sum(ledger.seconds.values()) >= limit_seconds:
        return f"the {limit_seconds / 60:.0f} minutes were over before"
    return None


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def is_failure(entry: Any) -> bool:
    return isinstance(entry, dict) and FAILED in entry


def seconds_left(plan: Sequence[Measurement], ledger: Ledger) -> float:
    """What is missing, by what it should take and by how much slower than that the others have been."""
    done = [one for one in plan if ledger.seconds.get(one.key)]
    expected, spent = sum(one.seconds for one in done), sum(ledger.seconds[one.key] for one in done)
    return sum(one.seconds for one in plan if one.key not in ledger) * (spent / expected if expected else 1.0)


def _brief(entry: Any) -> str:
    """Its numbers, for the line of progress."""
    numbers = entry.items() if isinstance(entry, dict) else [("", entry)]
    return ", ".join(f"{name} {value:.4g}".strip() for name, value in numbers if isinstance(value, int | float))
