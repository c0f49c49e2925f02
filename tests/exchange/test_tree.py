"""The reduction tree: whoever holds what, the sum has the same bits."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from lockstep.exchange import tree


def test_maximal_subtrees_merge_siblings_only() -> None:
    assert tree.maximal_subtrees([0, 1, 2, 3]) == [(2, 0)]
    assert tree.maximal_subtrees([1, 2]) == [(0, 1), (0, 2)]
    assert tree.maximal_subtrees([7, 2, 3, 6, 5]) == [(1, 1), (0, 5), (1, 3)]
    assert tree.maximal_subtrees([]) == []


def test_every_partition_of_the_leaves_gives_the_same_bits() -> None:
    numbers = random.Random(7)
    values = [np.float32(numbers.uniform(-1, 1) * 10 ** numbers.randint(-6, 6)) for _ in range(16)]

    def add(left: np.float32, right: np.float32) -> np.float32:
        return np.float32(left + right)

    def subtree(node: tree.Node) -> np.float32:
        leaves = {(0, leaf): values[leaf] for leaf in range(16)}
        level, index = node
        inside = {(0, leaf - (index << level)): leaves[0, leaf] for leaf in range(index << level, (index + 1) << level)}
        return tree.reduce_parts(inside, 1 << level, add)

    whole = tree.reduce_parts({(0, leaf): value for leaf, value in enumerate(values)}, 16, add)
    chain = values[0]
    for value in values[1:]:
        chain = add(chain, value)
    assert chain != whole  # the control: the order does matter for these numbers
    for _ in range(200):
        owner = [numbers.randrange(5) for _ in range(16)]
        parts = {}
        for member in range(5):
            for node in tree.maximal_subtrees([leaf for leaf in range(16) if owner[leaf] == member]):
                parts[node] = subtree(node)
        assert tree.reduce_parts(parts, 16, add) == whole


def test_a_missing_leaf_is_our_bug_and_is_named() -> None:
    with pytest.raises(AssertionError, match="leaf 3 is missing"):
        tree.reduce_parts({(1, 0): 1, (0, 2): 1}, 4, lambda left, right: left + right)


@pytest.mark.parametrize("members", range(1, 9))
def test_leaves_are_shared_completely_and_evenly(members: int) -> None:
    shares = tree.share_leaves(8, members)
    assert [leaf for share in shares for leaf in share] == list(range(8))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == tree.rounds(8, members)


@pytest.mark.parametrize(("length", "owners"), [(1000, 3), (16, 4), (5, 2), (62_378_344, 7)])
def test_slices_are_aligned_and_cover_everything(length: int, owners: int) -> None:
    slices = tree.slices(length, owners)
    assert slices[0][0] == 0
    assert slices[-1][1] == length
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(slices))
    assert all(start % 16 == 0 for start, stop in slices if stop > start)


def test_seven_workers_on_eight_leaves_are_as_fast_as_four() -> None:
    assert tree.effective_members(8, 7) == 4
    assert tree.effective_members(8, 4) == 4
    assert tree.effective_members(8, 3) == 3
