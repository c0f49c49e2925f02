"""The reduction tree: one fixed balanced binary tree over the leaf index, and who sends which part of it to whom.

Everything here is pure. A node is (level, index): (0, i) is leaf i, (k, i) the sum of leaves i*2**k to (i+1)*2**k-1.
Floating-point addition commutes but does not associate, so the bits are fixed by the tree and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

Node = tuple[int, int]
Part = TypeVar("Part")

SLICE_ALIGNMENT = 16
"""Slices start at multiples of 16 floats: 64 bytes, a cache line."""


def parent(node: Node) -> Node:
    return node[0] + 1, node[1] // 2


def sibling(node: Node) -> Node:
    return node[0], node[1] ^ 1


def children(node: Node) -> tuple[Node, Node]:
    level, index = node
    return (level - 1, 2 * index), (level - 1, 2 * index + 1)


def leaves_of(node: Node) -> range:
    """The leaves under a node."""
    level, index = node
    return range(index << level, (index + 1) << level)


def contains(node: Node, other: Node) -> bool:
    """Whether a node is the other one or above it."""
    return node[0] >= other[0] and other[1] >> (node[0] - other[0]) == node[1]


def root(num_leaves: int) -> Node:
    return num_leaves.bit_length() - 1, 0


def maximal_subtrees(leaves: Collection[int]) -> list[Node]:
    """The fewest aligned subtrees that cover exactly these leaves, in the order of their first leaf."""
    nodes: set[Node] = set()
    for leaf in leaves:
        node = (0, leaf)
        while sibling(node) in nodes:
            nodes.remove(sibling(node))
            node = parent(node)
        nodes.add(node)
    return sorted(nodes, key=lambda node: node[1] << node[0])


def reduce_parts(parts: Mapping[Node, Part], num_leaves: int, add: Callable[[Part, Part], Part]) -> Part:
    """The sum at the root, from parts that cover every leaf exactly once, added in the tree's order."""

    def value(node: Node) -> Part:
        if node in parts:
            return parts[node]
        if node[0] == 0:
            raise AssertionError(f"leaf {node[1]} is missing from the parts {sorted(parts)}")
        left, right = children(node)
        return add(value(left), value(right))

    return value(root(num_leaves))


def share_leaves(num_leaves: int, num_members: int) -> list[list[int]]:
    """Contiguous leaves for every member; the first ones take one more where N does not divide V."""
    base, extra = divmod(num_leaves, num_members)
    shares = []
    first = 0
    for member in range(num_members):
        count = base + (member < extra)
        shares.append(list(range(first, first + count)))
        first += count
    return shares


def slices(length: int, num_owners: int) -> list[tuple[int, int]]:
    """The slice (start, stop) of the flat vector that each owner adds up; starts are aligned."""
    blocks = -(-length // SLICE_ALIGNMENT)
    bounds = [min(length, (owner * blocks // num_owners) * SLICE_ALIGNMENT) for owner in range(num_owners)]
    return list(zip(bounds, [*bounds[1:], length], strict=True))


def rounds(num_leaves: int, num_members: int) -> int:
    """Leaves that the busiest member computes in a step."""
    return -(-num_leaves // num_members)


def effective_members(num_leaves: int, num_members: int) -> int:
    """The smallest number of members that is as fast as `num_members`."""
    return -(-num_leaves // rounds(num_leaves, num_members))
