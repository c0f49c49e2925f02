"""The order of samples: a pure function, complete in every epoch, the same for every number of workers."""

from __future__ import annotations

import hashlib
import time

import numpy as np
import pytest

from lockstep import philox
from lockstep.data.order import Layout, permutation, samples_of_leaf, steps_of_epochs


def test_philox_gives_the_published_numbers() -> None:
    def words(counter: list[int], key: tuple[int, int]) -> list[int]:
        return [int(word) for word in philox.philox4x32(np.array([counter], dtype=np.uint32), key)[0]]

    assert words([0, 0, 0, 0], (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    full = 0xFFFFFFFF
    assert words([full] * 4, (full, full)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert words(pi, (0xA4093822, 0x299F31D0)) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_every_epoch_has_another_permutation_of_all_samples() -> None:
    """F14: reshuffled at the level of samples, over the whole data set."""
    first, second = permutation(0, 0, 1000), permutation(0, 1, 1000)
    assert sorted(first) == sorted(second) == list(range(1000))
    assert (first != second).mean() > 0.9
    assert (first != permutation(1, 0, 1000)).mean() > 0.9
    assert (first == permutation(0, 0, 1000)).all()


def test_no_sample_is_shared_or_left_out() -> None:
    """F15: over two epochs, every sample once per epoch, whatever the cut into leaves; batches cross epochs."""
    size, batch, leaves = 100, 16, 4
    seen = []
    for step in range(13):
        for leaf in range(leaves):
            samples = samples_of_leaf(3, size, batch, leaves, step, leaf)
            assert len(samples) == batch // leaves
            seen += list(zip(samples.epoch.tolist(), samples.index.tolist(), strict=True))
    assert len(seen) == len(set(seen)) == 208
    for epoch in (0, 1):
        assert sorted(index for e, index in seen if e == epoch) == list(range(size))


def test_a_step_takes_the_same_samples_for_every_number_of_leaves() -> None:
    def step(leaves: int) -> list[int]:
        return [i for leaf in range(leaves) for i in samples_of_leaf(0, 1000, 32, leaves, 5, leaf).index.tolist()]

    assert step(1) == step(4) == step(32)


def test_a_batch_larger_than_the_data_set_spans_several_epochs() -> None:
    samples = samples_of_leaf(0, 10, 32, 1, 0, 0)
    assert np.bincount(samples.epoch).tolist() == [10, 10, 10, 2]


@pytest.mark.parametrize(("epochs", "steps"), [(1, 391), (0.5, 196), (0.1, 40), (3, 1172)])
def test_epochs_are_rounded_up_to_steps(epochs: float, steps: int) -> None:
    assert steps_of_epochs(epochs, 50_000, 128) == steps


def test_leaf_seeds_differ_in_their_low_32_bits() -> None:
    seeds = {philox.leaf_seed(0, step, leaf) & 0xFFFFFFFF for step in range(50) for leaf in range(8)}
    assert len(seeds) == 400


GOLDEN = [8, 5, 7, 3, 4, 6, 0, 1, 9, 2]
GOLDEN_SHA256 = "b0abc6e55450d82cd03b634b9ec81345f99e1dfd40ab4449fc4758f809012ac9"
SHARDS = Layout((5, 1, 0, 30, 7, 20, 16, 12), window=3)


@pytest.mark.parametrize("window", [1, 3, 100])
def test_shards_are_read_whole_in_every_epoch(window: int) -> None:
    """F14, F15: every sample once per epoch, also where batches cross epochs, whatever the cut into leaves."""
    layout, size = Layout(SHARDS.sizes, window), len(SHARDS)
    seen = [
        (int(epoch), int(index))
        for step in range(12)
        for leaf in range(4)
        for samples in [samples_of_leaf(0, layout, 16, 4, step, leaf)]
        for epoch, index in zip(samples.epoch, samples.index, strict=True)
    ]
    assert len(set(seen)) == len(seen) == 12 * 16
    for epoch in (0, 1):
        assert sorted(index for one, index in seen if one == epoch) == list(range(size))


def windows(epoch: int, seed: int = 0) -> list[list[int]]:
    """The shards that each window of nine equal ones takes, in the order of its samples."""
    shard = np.repeat(np.arange(9), 10)[permutation(seed, epoch, Layout((10,) * 9, window=3))]
    return shard.reshape(3, 30).tolist()


def test_a_window_is_a_few_shards_and_all_of_them() -> None:
    """F14: who reads a window needs three shards, which come in no other window of this epoch, well mixed."""
    for window in windows(0):
        assert np.unique(window, return_counts=True)[1].tolist() == [10, 10, 10]
        assert (np.diff(window) != 0).sum() > 10


def test_every_epoch_has_other_windows() -> None:
    """F14: reshuffled over all shards, not only within what was together before."""
    taken = {tuple(sorted({*window})) for epoch in range(4) for window in windows(epoch)}
    assert len(taken) > 9
    assert windows(0) != windows(0, seed=1)
    assert windows(0) == windows(0)


def test_the_order_is_for_ever() -> None:
    """A run that is resumed with a later Lockstep goes on in the same order; where shards lie never counts."""
    order = permutation(1, 2, Layout((3, 2, 4, 1), window=2))
    assert order.tolist() == GOLDEN
    many = permutation(5, 0, Layout(tuple(range(1, 101)), window=16))
    assert hashlib.sha256(many.astype("<i8").tobytes()).hexdigest() == GOLDEN_SHA256


def test_all_of_imagenet_is_shuffled_within_a_second() -> None:
    """O(1) resume: the samples of any step need the permutation of one epoch, and nothing of the steps before it."""
    layout, steps_per_epoch = Layout((1281,) * 999 + (1448,), window=16), 1_281_167 / 256
    assert len(layout) == 1_281_167
    before = time.process_time()
    step = int(88.5 * steps_per_epoch)
    late = samples_of_leaf(0, layout, 256, 8, step, 7)
    assert time.process_time() - before < 5  # about one second; the rest is for a busy machine
    assert set(late.epoch.tolist()) == {88}
    first = (step * 256 + 7 * 32) % len(layout)
    assert (late.index == permutation(0, 88, layout)[first : first + 32]).all()
