"""The embedded data set: ten kinds of drawn shapes, 32 x 32 pixels in colour, kept in CIFAR's binary format.

Position, size, rotation, colours and noise are random, and the shape may be darker or brighter than its ground, so a
linear model fails where a small convolutional network succeeds. Drawing uses only exact IEEE operations (no sine, no
cosine): every machine makes the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lockstep import philox
from lockstep.config import Data
from lockstep.data import cache, cifar
from lockstep.data.records import CIFAR10, PIXELS, Records
from lockstep.data.source import Dataset

CLASSES = ("disc", "square", "triangle", "ring", "plus", "half disc", "bar", "two dots", "frame", "corner")
NUM_TRAIN_FILES, RECORDS_PER_FILE, NUM_TEST = 5, 2000, 2000
SIDE = 32

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def open_shapes(data: Data, seed: int) -> Dataset:
    dataset = cifar.open_cifar10(replace(data, path=str(materialize())), seed)
    return replace(dataset, class_names=CLASSES)


def materialize() -> Path:
    """The directory with the shapes, drawn now if they are not there yet. Safe when several processes come at once."""
    return cache.entry("shapes-v1", write_files)


def write_files(directory: Path) -> None:
    records = draw(0, NUM_TRAIN_FILES * RECORDS_PER_FILE + NUM_TEST)
    for number in range(NUM_TRAIN_FILES):
        part = records[number * RECORDS_PER_FILE : (number + 1) * RECORDS_PER_FILE]
        part.tofile(directory / f"data_batch_{number + 1}.bin")
    records[NUM_TRAIN_FILES * RECORDS_PER_FILE :].tofile(directory / "test_batch.bin")
    (directory / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")


def draw(first: int, stop: int) -> Records:
    """Records first .. stop-1 of the endless sequence of shapes; the label of record i is i modulo ten."""
    chunks = [_draw_chunk(np.arange(at, min(at + 500, stop))) for at in range(first, stop, 500)]
    return np.concatenate(chunks)


def _draw_chunk(index: npt.NDArray[np.int64]) -> Records:
    label = (index % 10).astype(np.uint8)
    word = philox.words(0, philox.STREAM_SHAPES, np.zeros(len(index)), index, num_words=16)
    coverage = _coverage(label, philox.unit(word[:, :8]).astype(np.float32))
    ground = philox.below(word[:, 8:11].ravel(), 160).reshape(-1, 3) + 48
    contrast = philox.below(word[:, 11:14].ravel(), 48).reshape(-1, 3) + 40
    sign = np.where(word[:, 14] >> np.uint32(31), 1, -1)[:, None]
    colour = ground + sign * contrast
    noise_words = philox.words(1, philox.STREAM_SHAPES, np.zeros(len(index)), index, num_words=PIXELS // 4)
    noise = np.ascontiguousarray(noise_words).view(np.uint8).reshape(-1, 3, SIDE, SIDE).astype(np.int64) % 41 - 20
    pixels = ground[:, :, None, None] + ((colour - ground)[:, :, None, None] * coverage[:, None]) // 4 + noise
    records = np.empty((len(index), CIFAR10.record), dtype=np.uint8)
    records[:, 0] = label
    records[:, 1:] = np.clip(pixels, 0, 255).reshape(len(index), -1)
    return records


def _coverage(label: npt.NDArray[np.uint8], unit: Floats) -> npt.NDArray[np.int64]:
    """How many of a pixel's four sample points lie inside the shape: n x 32 x 32."""
    fine = 2 * SIDE
    grid = ((np.arange(fine, dtype=np.float32) + np.float32(0.5)) / np.float32(fine)) * 2 - 1
    radius = np.float32(0.34) + np.float32(0.26) * unit[:, 0]
    reach = np.float32(0.95) - radius
    left = (2 * unit[:, 1] - 1) * reach
    top = (2 * unit[:, 2] - 1) * reach
    # Any rotation from a rational point of the circle: exact where a sine is not.
    t = 2 * unit[:, 3] - 1
    cos, sin = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
    x0 = (grid[None, None, :] - left[:, None, None]) / radius[:, None, None]
    y0 = (grid[None, :, None] - top[:, None, None]) / radius[:, None, None]
    x = cos[:, None, None] * x0 + sin[:, None, None] * y0
    y = cos[:, None, None] * y0 - sin[:, None, None] * x0
    inside = np.zeros((len(label), fine, fine), dtype=bool)
    for number in range(10):
        here = label == number
        inside[here] = _inside(number, x[here], y[here])
    coverage: npt.NDArray[np.int64] = inside.reshape(len(label), SIDE, 2, SIDE, 2).sum(axis=(2, 4))
    return coverage


def _inside(number: int, x: Floats, y: Floats) -> Mask:
    """Whether points lie in a shape of about unit size."""
    square = np.maximum(np.abs(x), np.abs(y))
    disc = x * x + y * y
    shapes: list[Mask] = [
        disc < 1.0,
        square < 0.85,
        (y > -0.6) & (1.75 * np.abs(x) + y < 1.15),
        (disc < 1.0) & (disc > 0.36),
        (square < 1.0) & (np.minimum(np.abs(x), np.abs(y)) < 0.3),
        (disc < 1.2) & (y > 0.0),
        (np.abs(x) < 1.0) & (np.abs(y) < 0.35),
        (np.abs(x) - 0.6) ** 2 + y * y < 0.16,
        (square < 0.9) & (square > 0.55),
        (square < 0.9) & ((x < -0.3) | (y < -0.3)),
    ]
    return shapes[number]
