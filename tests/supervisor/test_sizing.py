"""How many workers there are to be, and what happens below the smallest number with which training goes on."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from tests.supervisor.test_machine import build, promise, ready, rows, sent


def placed(workers: int, **options: Any) -> Machine:
    """All have room, and none is ready."""
    one = build(workers, **options)
    one.start()
    for worker in range(workers):
        one.handle(m.Placed(worker))
    return one


def waiting(workers: int, min_workers: int) -> Machine:
    """The last one is lost, there is no room for another, and the others have promised to wait for it."""
    one = ready(placed(workers, min_workers=min_workers))
    one.handle(m.Gone(workers - 1, "was lost", is_death=True))
    for worker in range(workers - 1):
        assert sent(promise(one, worker, 5), "generation") == []
    return one


def test_a_job_that_waits_for_others_can_be_stopped_with_a_checkpoint() -> None:
    """The one that is asked hears of it only in a generation, so there is one."""
    one = waiting(3, min_workers=3)
    actions = one.handle(m.StopRequested("SIGINT"))
    assert sent(actions, "checkpoint")[-1] == 0
    assert sent(actions, "generation") == [0, 1]
    one.handle(m.Checkpointed(5, "step-5", "five", "stop", number=2))
    assert one.outcome == m.Outcome("stopped", "five", "SIGINT")


def test_a_stop_that_came_first_waits_for_nobody() -> None:
    one = ready(placed(2, min_workers=2))
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.Gone(0, "was lost", is_death=True))
    actions = promise(one, 1, 5)
    assert (sent(actions, "checkpoint"), sent(actions, "generation")) == ([1], [1])


def test_a_stop_when_all_are_dead_and_others_find_no_room_is_at_once() -> None:
    one = waiting(2, min_workers=2)
    one.handle(m.Gone(0, "was lost", is_death=True))
    one.handle(m.StopRequested("SIGINT"))
    assert one.outcome == m.Outcome("stopped", None, "SIGINT")


@pytest.mark.parametrize("options", [{}, {"replace": False}, {"min_workers": 2}, {"num_servers": 1}])
def test_a_stop_ends_when_all_who_could_have_written_the_checkpoint_die(options: dict[str, Any]) -> None:
    """Others would only load what is stored, if there is room for them: none are started, and it is no failure."""
    one = ready(placed(2, **options)) if "num_servers" not in options else served(2, servers_hold_state=False)
    one.handle(m.StopRequested("SIGINT"))
    actions = one.handle(m.Gone(1, "was lost", is_death=True)) + one.handle(m.Gone(0, "was lost", is_death=True))
    assert one.outcome == m.Outcome("stopped", None, "SIGINT")
    assert not [action for action in actions if isinstance(action, m.Start)]
    told = [action.text for action in actions if isinstance(action, m.Tell)]
    assert told == ["worker 1 was lost; the others go on", "worker 0 was lost; nobody is left"]


def test_a_stop_ends_when_only_those_are_left_who_found_no_room() -> None:
    one = waiting(3, min_workers=3)
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.Gone(0, "was lost", is_death=True))
    assert one.outcome is None
    one.handle(m.Gone(1, "was lost", is_death=True))
    assert one.outcome == m.Outcome("stopped", None, "SIGINT")


def test_a_stop_before_the_beginning_goes_on_with_those_who_are_left() -> None:
    """None of them waits for one that will not come."""
    one = placed(2)
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.Gone(0, "was lost", is_death=True))
    assert one.outcome is None
    assert sent(one.handle(m.Ready(1, "host:1", 0)), "checkpoint") == [1]


def served(workers: int, servers_hold_state: bool = True) -> Machine:
    """All of them at work, and a server that holds the state."""
    one = build(workers, min_workers=workers, num_servers=1, servers_hold_state=servers_hold_state)
    one.start()
    for id_ in range(workers + 1):
        one.handle(m.Placed(id_))
        one.handle(m.Ready(id_, f"host:{id_}", 0))
    return one


def test_a_stop_waits_for_room_where_servers_have_what_is_to_be_saved() -> None:
    one = served(1)
    one.handle(m.Gone(0, "was lost", is_death=True))
    one.handle(m.StopRequested("SIGINT"))
    assert one.outcome is None
    one.handle(m.Placed(2))
    assert sent(one.handle(m.Ready(2, "host:2", 0)), "checkpoint") == [2]


def test_a_stop_waits_for_nobody_who_finds_no_room_beside_those_who_are_ready() -> None:
    """The servers have what is to be saved, and one worker can write it."""
    one = served(2)
    for worker in (0, 1):
        one.handle(m.Gone(worker, "was lost", is_death=True))
    one.handle(m.Placed(3))
    assert one.handle(m.Ready(3, "host:3", 0)) == []
    assert sent(one.handle(m.StopRequested("SIGINT")), "checkpoint") == [3]


def test_a_resize_below_the_minimum_lowers_it() -> None:
    one = ready(placed(4, min_workers=3))
    assert sent(one.handle(m.Resize(2)), "propose") == [0, 1]
    promise(one, 0, 5)
    assert sent(promise(one, 1, 5), "generation") == [0, 1]


@pytest.mark.parametrize(("host", "goes_on"), [("", [0, 1]), ("box", [])])
def test_nobody_waits_for_one_that_was_refused_unless_another_host_may_join(host: str, goes_on: list[int]) -> None:
    one = waiting(3, min_workers=3)
    one.handle(m.Placed(3, host))
    actions = one.handle(m.Raised(3, "there is no file /own/model.py", "set-up", user=True))
    assert sent(actions, "generation") == goes_on


def test_a_resize_is_recorded_with_the_number_on_this_host_where_others_may_join() -> None:
    one = ready(placed(4))
    assert rows(one.handle(m.Resize(3)), "resize") == [{"kind": "resize", "workers": 3, "step": 0}]
    assert rows(one.handle(m.Resize(2, here=1)), "resize") == [{"kind": "resize", "workers": 2, "here": 1, "step": 0}]
