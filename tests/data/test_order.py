"""The order of samples: a pure function, complete in every epoch, the same for every number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep import philox
from lockstep.data.order import permutation, samples_of_leaf, steps_of_epochs


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
