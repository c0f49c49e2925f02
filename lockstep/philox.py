"""Random bits as a pure function of (key, counter): the Philox4x32-10 generator, whole arrays at a time.

numpy promises no stability for its `Generator` methods and makes one generator per key; here thousands of samples,
each with a counter of its own, are drawn in one call, and the bits are fixed by the published algorithm (Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

# One stream per purpose, so that no two uses of a seed share bits.
STREAM_PERMUTATION = 1
STREAM_AUGMENT = 2
STREAM_SYNTHETIC = 3
STREAM_SHAPES = 4
STREAM_SHIFT = 16
STREAM_POLICY = 17
STREAM_CUTOUT = 18
STREAM_ERASE = 19
STREAM_MIX = 20
STREAM_SHARDS = 21
STREAM_FRAME = 22


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Four random words for every row of `counter` (n x 4)."""
    c0, c1, c2, c3 = (counter[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> shift) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def key_of(seed: int) -> tuple[int, int]:
    """The 64-bit key of a seed of any size."""
    digest = hashlib.sha256(f"lockstep key {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def words(seed: int, stream: int, epoch: npt.ArrayLike, index: npt.ArrayLike, num_words: int = 4) -> Words:
    """`num_words` random words for every pair (epoch, index): n x num_words."""
    index = np.asarray(index, dtype=np.uint64)
    counter = np.empty((index.size, 4), dtype=np.uint32)
    counter[:, 0] = index & np.uint64(0xFFFFFFFF)
    counter[:, 1] = index >> np.uint64(32)
    counter[:, 2] = np.asarray(epoch, dtype=np.uint32)
    key = key_of(seed)
    blocks = []
    for block in range(-(-num_words // 4)):
        counter[:, 3] = (stream << 16) | block
        blocks.append(philox4x32(counter, key))
    return np.concatenate(blocks, axis=1)[:, :num_words]


def below(word: Words, bound: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Whole numbers 0 .. bound-1 from words, by multiplication (the bias of 2**-32 * bound does not matter here)."""
    return ((word.astype(np.uint64) * np.asarray(bound, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)


def unit(word: Words) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1), exact in float64."""
    return word.astype(np.float64) / 4294967296.0


def sample_seed(seed: int, part: str, epoch: int, index: int) -> int:
    """The seed of the generators that an item of a user's own data set is drawn with."""
    digest = hashlib.sha256(f"lockstep sample {seed} {part} {epoch} {index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def leaf_seed(seed: int, step: int, leaf: int) -> int:
    """The seed of a leaf's generators: a hash, because torch's CPU generator keeps only the low 32 bits."""
    digest = hashlib.sha256(f"lockstep leaf {seed} {step} {leaf}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
