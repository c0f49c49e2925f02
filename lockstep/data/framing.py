"""Which window of a large image is taken: a pure function of (seed, epoch, sample, width, height), from Philox bits.

A window is in the pixels of the image, whole numbers; `decode.py` scales it to `data.side`. Flips and the rest of
augmentation come afterwards, in `augment.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lockstep import philox
from lockstep.config import Data
from lockstep.data.decode import Window
from lockstep.data.order import Samples

NUM_TRIES = 10
LEAST_AREA = 0.08
RATIO = 4 / 3
"""A window is at most so much longer than wide, or wider than long."""
NUM_WORDS = 2 * NUM_TRIES + 2

Frame = Callable[[int, int], Window]
"""The window of an image of this width and height."""


def training_frames(data: Data, seed: int, samples: Samples) -> list[Frame]:
    """A random window for every sample."""
    word = philox.words(seed, philox.STREAM_FRAME, samples.epoch, samples.index, NUM_WORDS)
    return [_training_frame(data, [float(one) for one in row]) for row in philox.unit(word)]


def _training_frame(data: Data, unit: list[float]) -> Frame:
    least, most = data.resize
    if data.framing == "random-resized":
        return lambda width, height: random_resized(unit, width, height)
    if data.framing == "square":
        return lambda width, height: cut_out(width, height, least, least, data.side, unit[0], unit[1])
    short = least + _below(unit[2], most - least + 1)
    return lambda width, height: cut_out(
        width, height, *with_short_side(width, height, short), data.side, unit[0], unit[1]
    )


def evaluation_frame(data: Data) -> Frame:
    """The middle of an image: all of it has a short side of `data.resize`, in "square" both sides."""
    scaled, side = max(data.resize[0], data.side), data.side
    if data.framing == "square":
        return lambda width, height: cut_out(width, height, scaled, scaled, side)
    return lambda width, height: cut_out(width, height, *with_short_side(width, height, scaled), side)


def random_resized(unit: list[float], width: int, height: int) -> Window:
    """8 to 100 % of the area, at a ratio of 3/4 to 4/3; ten tries, then the middle: as in torchvision."""
    limit = math.log(RATIO)
    for attempt in range(NUM_TRIES):
        area = width * height * (LEAST_AREA + unit[2 * attempt] * (1 - LEAST_AREA))
        ratio = math.exp((2 * unit[2 * attempt + 1] - 1) * limit)
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = _below(unit[-2], width - wide + 1), _below(unit[-1], height - high + 1)
            return Window(left, top, wide, high)
    wide = min(width, max(1, round(height * RATIO)))
    high = min(height, max(1, round(width * RATIO)))
    return Window((width - wide) // 2, (height - high) // 2, wide, high)


def with_short_side(width: int, height: int, short: int) -> tuple[int, int]:
    """The size of an image when its short side is scaled to `short`."""
    return (short, round(height * short / width)) if width <= height else (round(width * short / height), short)


def cut_out(
    width: int, height: int, scaled_width: int, scaled_height: int, side: int, across: float = 0.5, down: float = 0.5
) -> Window:
    """What becomes side x side pixels of the image scaled to this size; 0.5 is the middle, for both of the rest."""
    left, wide = _piece(width, scaled_width, side, across)
    top, high = _piece(height, scaled_height, side, down)
    return Window(left, top, wide, high)


def _piece(length: int, scaled: int, side: int, where: float) -> tuple[int, int]:
    """First pixel and length of a piece of `side` of `scaled` pixels, in those of the original."""
    start = _below(where, scaled - side + 1)
    first, last = round(start * length / scaled), round((start + side) * length / scaled)
    return min(first, length - 1), max(1, min(last, length) - first)


def _below(unit: float, bound: int) -> int:
    return int(unit * bound)
