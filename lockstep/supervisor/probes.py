"""Whose arithmetic is whose: a probe is the digest of one leaf and one update of the model, from one state. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Probe:
    digest: str
    facts: dict[str, Any]
    """What may explain other bits: versions, processor, threads."""


@dataclass(frozen=True)
class OwnCode:
    """The user's own functions that the probe calls."""

    names: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Those whose files are not what they were when the run began."""


def most_common(probes: list[Probe]) -> Probe:
    """What most workers compute is what the run computes; on a tie, what the first one does."""
    digest, _ = Counter(probe.digest for probe in probes).most_common(1)[0]
    return next(probe for probe in probes if probe.digest == digest)


def describe_difference(mine: Probe, runs: Probe, code: OwnCode) -> str:
    """What differs, in words."""
    keys = [key for key in (*runs.facts, *mine.facts) if mine.facts.get(key) != runs.facts.get(key)]
    changed = [f"the code of {name} has changed since the run began" for name in code.changed]
    if not keys and not changed:
        return f"everything that is known of it is the same, so suspect {_suspects(code)}"
    facts = [f"{key} is {mine.facts.get(key)} there and {runs.facts.get(key)} here" for key in dict.fromkeys(keys)]
    return ", ".join([*changed, *facts])


def _suspects(code: OwnCode) -> str:
    """The likeliest first."""
    others = "its data files, a library or the hardware"
    if not code.names:
        return others
    return (
        f"random numbers that {' or '.join(code.names)} draws from a generator of its own (use the global ones of "
        f"torch, numpy or `random`, which are seeded), a change in what it imports, {others}"
    )


def advice(code: OwnCode) -> str:
    """What to do about a run that nobody here can go on with."""
    mixed = "or give --allow-mixed and lose the promise of one digest"
    if code.changed:
        return f"bring the old code back, start a new run, with --init RUN to go on from these weights, {mixed}"
    return f"train it where it began, start a new run, {mixed}"
