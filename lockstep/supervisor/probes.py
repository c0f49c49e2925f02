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


def most_common(probes: list[Probe]) -> Probe:
    """What most workers compute is what the run computes; on a tie, what the first one does."""
    digest, _ = Counter(probe.digest for probe in probes).most_common(1)[0]
    return next(probe for probe in probes if probe.digest == digest)


def describe_difference(mine: Probe, runs: Probe) -> str:
    """What differs, in words."""
    keys = [key for key in (*runs.facts, *mine.facts) if mine.facts.get(key) != runs.facts.get(key)]
    if not keys:
        return "everything that is known of it is the same, so suspect its data files, a library or the hardware"
    return ", ".join(
        f"{key} is {mine.facts.get(key)} there and {runs.facts.get(key)} here" for key in dict.fromkeys(keys)
    )
