"""Where the processes of a job go on the nodes of an allocation."""

from __future__ import annotations

import pytest

from lockstep.engines import Role, Site
from lockstep.engines.slurm_nodes import check_room, own_node, place, slots
from lockstep.errors import UserError

ROOM = {"n1": 2, "n2": 2, "n3": 2}


def spread(roles: list[Role], site: Site, lost: tuple[str, ...] = ()) -> list[str | None]:
    """Where one after the other goes."""
    running: list[tuple[Role, str]] = []
    found = []
    for role in roles:
        node = place(role, ROOM, running, lost, own_node(ROOM, site))
        found.append(node)
        if node is not None:
            running.append((role, node))
    return found


def test_workers_are_spread_and_servers_share_their_nodes() -> None:
    """F82."""
    roles: list[Role] = ["worker", "worker", "worker", "worker", "server", "server"]
    assert spread(roles, Site(num_workers=4, num_servers=2)) == ["n1", "n2", "n3", "n1", "n2", "n3"]


def test_the_evaluator_has_a_node_of_its_own_or_takes_the_emptiest() -> None:
    """F82."""
    roles: list[Role] = ["worker", "worker", "worker", "server", "evaluator"]
    own = Site(num_workers=3, evaluator="own")
    assert spread(roles, own) == ["n1", "n2", "n1", "n2", "n3"]
    assert spread(roles, own, lost=("n3",)) == ["n1", "n2", "n1", "n2", "n2"]
    assert spread(roles, Site(num_workers=3, evaluator="shared")) == ["n1", "n2", "n3", "n1", "n3"]


def test_a_lost_node_is_not_used_and_a_full_one_is_waited_for() -> None:
    site = Site(num_workers=4)
    assert spread(["worker"] * 5, site, lost=("n2",)) == ["n1", "n3", "n1", "n3", None]
    assert spread(["server"] * 3, site, lost=("n1", "n2", "n3")) == [None, None, None]


def test_how_many_workers_fit() -> None:
    assert slots({"n1": 8, "n2": 3}, per_worker=2, threads_per_core=1, gpus=None) == {"n1": 4, "n2": 1}
    assert slots({"n1": 8}, per_worker=1, threads_per_core=2, gpus=None) == {"n1": 4}
    assert slots({"n1": 8}, per_worker=1, threads_per_core=1, gpus=2) == {"n1": 2}


def test_too_small_an_allocation_is_refused() -> None:
    """F82: before anything starts."""
    check_room(ROOM, Site(num_workers=6), 1)
    check_room(ROOM, Site(num_workers=9, min_workers=6), 1)
    check_room(ROOM, Site(num_workers=4, num_servers=9, evaluator="own"), 1)
    with pytest.raises(UserError, match="3 nodes has room for 6 workers with 1 CPU each, and 7 are needed"):
        check_room(ROOM, Site(num_workers=7), 1)
    with pytest.raises(UserError, match="room for 4 workers with 2 CPUs and a GPU each, and 5 are needed"):
        check_room(ROOM, Site(num_workers=5, evaluator="own", uses_gpus=True), 2)
    with pytest.raises(UserError, match="has only n1: ask for one node more, or take --evaluator shared"):
        check_room({"n1": 8}, Site(num_workers=1, evaluator="own"), 1)
