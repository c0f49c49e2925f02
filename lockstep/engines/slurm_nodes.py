"""Which node of an allocation a process goes to. Pure; `slurm.py` knows who is where and which nodes are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from lockstep.engines import Role, Site
from lockstep.errors import UserError


def slots(cpus: Mapping[str, int], per_worker: int, threads_per_core: int, gpus: int | None) -> dict[str, int]:
    """How many workers have room on every node, in their order. Slurm hands out whole cores, whatever was asked for."""
    taken = -(-per_worker // threads_per_core) * threads_per_core
    return {node: min(count // taken, count // taken if gpus is None else gpus) for node, count in cpus.items()}


def own_node(nodes: Iterable[str], site: Site) -> str | None:
    """The node that is the evaluator's alone; the supervisor is on the first."""
    return list(nodes)[-1] if site.evaluator == "own" else None


def check_room(room: Mapping[str, int], site: Site, per_worker: int) -> None:
    """Refuse an allocation that is too small, before anything starts."""
    own = own_node(room, site)
    if own is not None and len(room) == 1:
        raise UserError(
            f"the evaluator needs a node of its own, and this allocation has only {own}: ask for one node more, or "
            "take --evaluator shared"
        )
    needed = site.num_workers if site.min_workers is None else site.min_workers
    there = sum(count for node, count in room.items() if node != own)
    if there < needed:
        what = f"{per_worker} CPU{'s' if per_worker > 1 else ''}" + (" and a GPU" if site.uses_gpus else "")
        nodes = "1 node" if len(room) == 1 else f"{len(room)} nodes"
        raise UserError(
            f"this allocation of {nodes} has room for {there} workers with {what} each, and {needed} are needed: ask "
            "for more nodes or CPUs, or take fewer --workers"
        )


def place(
    role: Role,
    room: Mapping[str, int],
    running: Collection[tuple[Role, str]],
    lost: Collection[str],
    own: str | None,
) -> str | None:
    """The node for another process, given the role and node of those that run; None as long as there is no room.

    Workers are spread over the nodes and keep within what each has room for. Servers are spread too, and share nodes
    with workers. The evaluator has a node of its own, or takes the emptiest; so it does when its own is lost.
    """
    usable = [node for node in room if node not in lost]
    shared = [node for node in usable if node != own]
    everyone = Counter(node for _, node in running)
    peers = Counter(node for other, node in running if other == role)
    if role == "evaluator":
        if own in usable:
            return own
        return min(reversed(shared), key=lambda node: everyone[node], default=None)
    if role == "worker":
        shared = [node for node in shared if peers[node] < room[node]]
    return min(shared, key=lambda node: (peers[node], everyone[node]), default=None)
