"""Who computes which leaf in the first step of a generation. Pure."""

from __future__ import annotations

from lockstep.exchange import tree


def share(
    ids: list[int], joiners: list[int], held: dict[int, set[int]], before: dict[int, int], num_leaves: int
) -> dict[int, set[int]]:
    """The leaves of everyone: what is held stays, what is missing stays with whom it had been given to (`before`) if
    that one lives, and the rest goes to whoever has the least to do."""
    fresh = not any(held.values())
    if fresh and not before:
        return dict(zip(ids, map(set, tree.share_leaves(num_leaves, len(ids))), strict=True))
    leaves = {id_: set(held.get(id_, ())) for id_ in ids}
    taken = set().union(*leaves.values())
    todo = dict.fromkeys(ids, 0)
    orphans = []
    for leaf in range(num_leaves):
        if leaf in taken:
            continue
        owner = before.get(leaf)
        if owner in todo:
            leaves[owner].add(leaf)
            todo[owner] += 1
        else:
            orphans.append(leaf)
    # Joiners have a state to copy first; they get a part only if there is nothing but work.
    able = ids if fresh else [id_ for id_ in ids if id_ not in joiners]
    for leaf in orphans:
        least = min(able, key=lambda id_: todo[id_])
        leaves[least].add(leaf)
        todo[least] += 1
    return leaves
