"""What a server does with its slice, and to whom it gives late leaves."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from lockstep.exchange import tree
from lockstep.exchange.backups import Backups
from lockstep.exchange.board import KEPT_RESULTS, Board, Part, Result

LEAVES = 8
NUMBERS = np.random.default_rng(0)


def leaf_parts(length: int = 33) -> list[Part]:
    return [NUMBERS.standard_normal(length).astype(np.float32) for _ in range(LEAVES)]


def value(parts: list[Part], node: tree.Node) -> Part:
    """The sum under a node, as a worker that holds all of it computes it."""
    if node[0] == 0:
        return parts[node[1]].copy()
    left, right = tree.children(node)
    return value(parts, left) + value(parts, right)


def whole(parts: list[Part]) -> Part:
    tensors = {(0, leaf): torch.from_numpy(part) for leaf, part in enumerate(parts)}
    total: Part = (tree.reduce_parts(tensors, LEAVES, torch.add) * (1.0 / LEAVES)).numpy()
    return total


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_in_whatever_order_and_twice_the_mean_has_the_bits_of_the_tree(seed: int) -> None:
    """F53 F55: subtrees of any shape, from several workers, overlapping."""
    chance, parts = random.Random(seed), leaf_parts()
    board, result = Board(LEAVES, first_step=5), None
    nodes = [(level, index) for level in range(4) for index in range(LEAVES >> level)]
    while result is None:
        node = chance.choice(nodes if chance.random() < 0.3 else nodes[:LEAVES])
        result = board.push(chance.randrange(3), 5, node, value(parts, node))
    assert result.values.tobytes() == whole(parts).tobytes()
    assert (result.step, result.num_leaves, board.step) == (5, LEAVES, 6)


def test_a_chain_gives_other_bits() -> None:
    """The control for the test above."""
    parts = leaf_parts(4096)
    chain = sum(parts[1:], parts[0]) * np.float32(1 / LEAVES)
    assert chain.tobytes() != whole(parts).tobytes()


def push_all(board: Board, step: int) -> Result | None:
    results = [board.push(0, step, (0, leaf), part) for leaf, part in enumerate(leaf_parts())]
    assert results[:-1] == [None] * (LEAVES - 1)
    return results[-1]


def test_a_late_sum_is_dropped_and_the_last_results_are_kept() -> None:
    board = Board(LEAVES, first_step=0)
    for step in range(6):
        assert push_all(board, step) is not None
    assert board.push(1, 2, (0, 0), leaf_parts()[0]) is None
    assert board.missing() == list(range(LEAVES))
    assert [board.result(step) is not None for step in range(6)] == [step >= 6 - KEPT_RESULTS for step in range(6)]
    assert [board.is_gone(step) for step in range(7)] == [step < 6 - KEPT_RESULTS for step in range(7)]


def test_with_fewer_leaves_the_mean_is_over_those_that_came() -> None:
    """F55: the classic way, which loses the late ones."""
    parts, board = leaf_parts(), Board(LEAVES, first_step=0, wait_for=3)
    assert board.push(0, 0, (0, 6), parts[6].copy()) is None
    result = board.push(1, 0, (1, 1), parts[2] + parts[3])
    assert result is not None
    assert result.num_leaves == 3
    assert np.array_equal(result.values, ((parts[2] + parts[3]) + parts[6]) * np.float32(1 / 3))


OWNERS = {leaf: leaf // 2 for leaf in range(8)}
"""Four workers, two leaves each."""


def test_a_late_leaf_goes_to_whoever_is_idle_and_only_when_it_is_late() -> None:
    backups = Backups(limit=8)
    backups.begin(OWNERS, now=100.0)
    backups.idle(0, now=102.0)
    backups.idle(1, now=102.1)
    assert backups.assign([4, 5, 6, 7], now=102.9) == [], "the others took half as long again at most"
    assert backups.assign([4, 5, 6, 7], now=103.1) == [(0, 7), (1, 6)]
    assert backups.assign([4, 5, 6, 7], now=103.2) == [], "nobody is idle"
    backups.idle(1, now=104.0)
    assert backups.assign([4, 5, 7], now=104.0) == [(1, 5)]


def test_no_more_leaves_are_computed_twice_than_allowed() -> None:
    backups = Backups(limit=1)
    backups.begin(OWNERS, now=0.0)
    for worker in (0, 1):
        backups.idle(worker, now=1.0)
    assert backups.assign([6, 7], now=10.0) == [(0, 7)]
    backups.idle(0, now=11.0)
    assert backups.assign([6], now=20.0) == []


def test_with_one_that_was_late_nobody_waits_again_until_it_is_in_time() -> None:
    backups = Backups(limit=8)
    backups.begin(OWNERS, now=0.0)
    in_time: dict[int, set[int]] = {0: {0, 1}, 1: {2, 3}, 2: {4, 5}}
    backups.end({**in_time, 0: {0, 1, 6, 7}})
    backups.begin(OWNERS, now=10.0)
    backups.idle(0, now=10.1)
    assert backups.assign([4, 5, 6, 7], now=10.1) == [(0, 7)], "worker 3 was late, worker 2 was not"
    backups.end({**in_time, 3: {6, 7}})
    backups.begin(OWNERS, now=20.0)
    backups.idle(0, now=20.1)
    assert backups.assign([6, 7], now=20.1) == []
