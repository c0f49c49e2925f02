"""How many numbers travel per step, as formulas. `docs/strategies.md` prints them, and tests count the bytes. Pure.

L is the length of the flat vector, N the number of workers, V that of leaves. A worker holds m maximal subtrees, one
where N divides V.
"""

from __future__ import annotations

from lockstep.exchange import tree


def subtrees(num_leaves: int, num_workers: int, rank: int) -> int:
    """m: the sums that a worker has to send."""
    return len(tree.maximal_subtrees(tree.share_leaves(num_leaves, num_workers)[rank]))


def allreduce_sent(length: int, num_leaves: int, num_workers: int, rank: int) -> int:
    """m (L - L/N) of sums to the other owners, and (N - 1) L/N of results: 2 (N - 1)/N L where N divides V."""
    bounds = tree.slices(length, num_workers)
    mine = bounds[rank][1] - bounds[rank][0]
    return subtrees(num_leaves, num_workers, rank) * (length - mine) + (num_workers - 1) * mine


def allreduce_least(length: int, num_workers: int) -> float:
    """What no way of adding vectors of N workers can go below, on average over them: 2 (N - 1)/N L."""
    return 2 * (num_workers - 1) / num_workers * length


def averaging_least(length: int, num_workers: int, local_steps: int) -> float:
    """The same once in a round, for a vector that also holds what the optimizer keeps: what "averaging" sends in the
    mean over workers and over the steps of a round, where N divides V."""
    return allreduce_least(length, num_workers) / local_steps


def served_sent(length: int, num_leaves: int, num_workers: int, rank: int, *, every_leaf: bool = False) -> int:
    """m L to the servers; with backups or dropped leaves every leaf is sent, V/N L where N divides V."""
    shares = tree.share_leaves(num_leaves, num_workers)
    return (len(shares[rank]) if every_leaf else subtrees(num_leaves, num_workers, rank)) * length


def served_received(length: int) -> int:
    """L of results, from all servers together."""
    return length


def served_least(length: int) -> int:
    """What a worker cannot do without: its sum once to those who own the slices."""
    return length
