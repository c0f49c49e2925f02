"""How the images of a leaf are mixed with each other (mixup, cutmix): drawn here, keyed by (seed, step, leaf).

The mixing itself, on the device, and the loss that goes with it are in `lockstep.mixing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockstep import philox
from lockstep.config import Data

Box = tuple[int, int, int, int]
"""Top, bottom, left, right."""


@dataclass(frozen=True)
class Mix:
    """Every image of a leaf is mixed with the one before it, the first with the last."""

    weight: float
    """The share of the image itself."""
    box: Box | None = None
    """The part that comes from the other image (cutmix); without it the two are blended (mixup)."""


def draw(data: Data, seed: int, step: int, leaf: int, height: int, width: int) -> Mix | None:
    """A leaf's mix; with both kinds asked for, one of them by the toss of a coin."""
    if not (data.mixup or data.cutmix):
        return None
    coin, first, second, row, column = (
        int(word) for word in philox.words(seed, philox.STREAM_MIX, leaf, [step], num_words=5)[0]
    )
    cuts = data.cutmix > 0 and (data.mixup == 0 or coin >= 2**31)
    weight = symmetric_beta(data.cutmix if cuts else data.mixup, first, second)
    if not cuts:
        return Mix(weight)
    box = box_of(weight, (row * height) >> 32, (column * width) >> 32, height, width)
    area = (box[1] - box[0]) * (box[3] - box[2])
    return Mix(1.0 - area / (height * width), box)


def box_of(weight: float, row: int, column: int, height: int, width: int) -> Box:
    """A box of the image's shape and `1 - weight` of its area around a centre; what lies outside is cut off."""
    side = math.sqrt(1.0 - weight)
    tall, wide = int(height * side), int(width * side)
    top, left = row - tall // 2, column - wide // 2
    return max(top, 0), min(top + tall, height), max(left, 0), min(left + wide, width)


def symmetric_beta(alpha: float, first: int, second: int) -> float:
    """A number with the distribution Beta(alpha, alpha) from two random words, without rejection.

    Student's t with 2 alpha degrees of freedom by the polar method (Bailey 1994), of which 1/2 + t / (2 sqrt(2 alpha +
    t^2)) has this distribution (Devroye 1996). It is rounded to 16 bits: the last bit of a logarithm, which depends on
    the math library, then does not matter, and float32 has it and its complement exactly.
    """
    surprise = -math.log((first + 0.5) / 2**32) / alpha
    angle = 2.0 * math.pi * (second + 0.5) / 2**32
    squared = math.expm1(min(surprise, 700.0)) * math.cos(angle) ** 2
    half = math.sqrt(squared / (1.0 + squared)) / 2.0
    return round((0.5 + math.copysign(half, math.cos(angle))) * 65536) / 65536
