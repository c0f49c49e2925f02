"""Every augmentation that a recipe can ask for, for tests that must hold for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockstep.config import Data

PLAIN = Data(source="shapes", crop_padding=0, flip=False)

PER_SAMPLE: dict[str, dict[str, Any]] = {
    "crop": {"crop_padding": 4},
    "reflect": {"crop_padding": 4, "pad_mode": "reflect"},
    "shift": {"shift": 0.2},
    "flip": {"flip": True},
    "alternate": {"flip": "alternate"},
    "trivial": {"policy": "trivial"},
    "rand": {"policy": "rand"},
    "cutout": {"cutout": 12},
    "erase": {"erase": 0.9},
}
PER_LEAF: dict[str, dict[str, Any]] = {
    "mixup": {"mixup": 0.8},
    "cutmix": {"cutmix": 1.0},
}
EACH = PER_SAMPLE | PER_LEAF
EVERYTHING: dict[str, Any] = {
    "crop_padding": 4,
    "pad_mode": "reflect",
    "shift": 0.2,
    "flip": "alternate",
    "policy": "trivial",
    "cutout": 8,
    "erase": 0.5,
    "mixup": 0.2,
    "cutmix": 1.0,
}


def asking(name: str) -> Data:
    """Data with one augmentation and no other."""
    return replace(PLAIN, **EACH[name])
