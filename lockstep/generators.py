"""The generators of random numbers that code of the user's may draw from: torch's, numpy's and `random`."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

TORCH, NUMPY, PYTHON = "torch's global generator", "numpy's global generator", "Python's module random"
GPU = "torch's generator of the GPU"


def seed(number: int) -> None:
    """Seed all of them. torch is left out where it is not imported: the supervisor does without it."""
    if (torch := _torch()) is not None:
        torch.manual_seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


def states() -> dict[str, Any]:
    """What each of them is at, by its name; that of a GPU if one is in use."""
    found: dict[str, Any] = {NUMPY: np.random.get_state(), PYTHON: random.getstate()}
    if (torch := _torch()) is not None:
        found[TORCH] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            found[GPU] = torch.cuda.get_rng_state()
    return found


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names of those that are no longer at what `states` gave."""
    return [name for name, state in before.items() if not _same(state, now[name])]


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, tuple):  # torch's are tensors
        return np.array_equal(one, other)
    if isinstance(one[1], np.ndarray):
        return bool(one[2:] == other[2:]) and np.array_equal(one[1], other[1])
    return bool(one == other)


def restore(before: dict[str, Any]) -> None:
    """Go on from what `states` gave."""
    np.random.set_state(before[NUMPY])
    random.setstate(before[PYTHON])
    if TORCH in before:
        _torch().set_rng_state(before[TORCH])
    if GPU in before:
        _torch().cuda.set_rng_state(before[GPU])


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is drawn or seeded meanwhile, afterwards they go on as if nothing had been."""
    before = states()
    try:
        yield
    finally:
        restore(before)


def _torch() -> Any:
    return sys.modules.get("torch")
