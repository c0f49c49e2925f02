"""Which data these are, as a checksum that costs little: sizes, labels, and a bounded, fixed selection of samples.

Neither where data lie, nor the seed, nor the number of workers enters it. What a source makes it of is for the source.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.data.order import Indices

MOST_BYTES = 4 << 20
"""Of samples that are looked at; hashing them takes milliseconds."""
LEAST = 8
"""Samples that are looked at however large they are."""


def of_arrays(*arrays: npt.NDArray[Any]) -> str:
    """The SHA-256 of types, shapes and little-endian bytes."""
    total = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{little.dtype.str}\0{','.join(map(str, array.shape))}\0".encode())
        total.update(little.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def chosen(size: int, sample_bytes: int) -> Indices:
    """The samples that are looked at, evenly over all of them, the first and the last included."""
    return evenly(size, max(LEAST, MOST_BYTES // max(1, sample_bytes)))


def evenly(size: int, most: int) -> Indices:
    """So many of the samples, or all of them if there are less."""
    count = min(size, most)
    return np.arange(count, dtype=np.int64) * (size - 1) // max(1, count - 1)
