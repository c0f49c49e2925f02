"""Rounds: every contestant once per round, in an order that changes, so that no one always runs first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

Say = Callable[[str], None]
"""Prints a line of progress."""

Contestant = Callable[[Path], float]
"""Runs in a directory that does not exist yet and returns what was measured."""


def interleaved(contestants: Mapping[str, Contestant], rounds: int, scratch: Path, say: Say) -> dict[str, list[float]]:
    """One sample per contestant and round. Every other round runs backwards, so that a drift hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        order = list(contestants.items())
        if number % 2:
            order.reverse()
        for place, (name, contestant) in enumerate(order):
            samples[name].append(contestant(scratch / f"round{number}-{place}"))
        say(f"round {number + 1}/{rounds}: " + ", ".join(f"{name} {samples[name][-1]:.4g}" for name in contestants))
    return samples
