"""Servers that hold the weights, as the supervisor sees them: every part has one, and nothing goes on without it."""

from __future__ import annotations

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores


def machine(*, replace: bool = True) -> Machine:
    """Workers 0 and 1, servers 2 and 3."""
    one = Machine(
        num_workers=2,
        num_servers=2,
        servers_hold_state=True,
        num_leaves=8,
        secret="s",
        saving=Saving(9, required=False),
        scores=Scores(3),
        replace=replace,
    )
    one.start()
    for id_ in range(4):
        one.handle(m.Ready(id_, f"host:{id_}", 0 if id_ < 2 else -1))
    assert one.generation is not None
    return one


def promise(one: Machine, *steps: int) -> None:
    for worker, step in enumerate(steps):
        one.handle(m.Promised(worker, one._number, step, ()))


def servers(one: Machine) -> list[int]:
    assert one.generation is not None
    return [server.id for server in one.generation.servers]


def test_the_part_of_a_lost_server_goes_to_its_replacement() -> None:
    """F54: the other ones keep theirs."""
    one = machine()
    actions = one.handle(m.Gone(2, "was killed", is_death=True))
    assert m.Start(4, "server") in actions
    promise(one, 3, 3)
    assert servers(one) == [3]
    one.handle(m.Ready(4, "host:4", -1))
    promise(one, 3, 3)
    assert servers(one) == [4, 3]


def test_workers_may_be_any_number_of_steps_apart() -> None:
    one = machine()
    one.handle(m.Gone(3, "was killed", is_death=True))
    promise(one, 9, 2)
    assert one.generation is not None
    assert one.generation.step == 9
    assert one.generation.joiners == one.generation.behind == ()


def test_without_replacement_a_lost_server_ends_the_job() -> None:
    one = machine(replace=False)
    one.handle(m.Gone(3, "was killed", is_death=True))
    assert one.outcome is not None
    assert "a part of the weights" in one.outcome.cause


def test_only_after_a_server_was_lost_may_workers_have_other_weights() -> None:
    for is_lost in (False, True):
        one = machine()
        if is_lost:
            one.handle(m.Gone(3, "was killed", is_death=True))
            promise(one, 9, 9)
        for worker, top1 in enumerate((8, 7)):
            one.handle(m.Evaluation(worker, 5, 0, LeafResult(10, top1, 10, 1.0)))
        assert (one.outcome is None) == is_lost
        if is_lost:
            one.handle(m.Finished(0, 9, "first"))
            one.handle(m.Finished(1, 9, "second"))
            assert one.outcome is not None
            assert (one.outcome.state, one.outcome.digest) == ("finished", "first")


def test_workers_that_differ_at_the_end_are_a_failure() -> None:
    one = machine()
    one.handle(m.Finished(0, 9, "first"))
    one.handle(m.Finished(1, 9, "second"))
    assert one.outcome is not None
    assert one.outcome.state == "failed"


def lose(one: Machine, *ids: int, now: float) -> list[str]:
    """What is said of each."""
    actions = [action for id_ in ids for action in one.handle(m.Gone(id_, "was killed", is_death=True), now)]
    return [action.text for action in actions if isinstance(action, m.Tell)]


def begin_anew(one: Machine, now: float) -> dict[str, object]:
    """All who were started are ready, the workers with the checkpoint of step 5: the row about what was lost."""
    actions = [action for id_ in one.everyone for action in one.handle(m.Ready(id_, f"host:{id_}", 5), now)]
    (row,) = [a.row for a in actions if isinstance(a, m.Record) and a.row["kind"] == "recovery"]
    return row


def test_when_all_workers_die_only_the_time_without_them_is_lost() -> None:
    one = machine()
    one.handle(m.Checkpointed(5, "step-5", "d", None, number=1), 100.0)
    one.handle(m.Heartbeat(0, 7, 0, "forward", 0.1), 101.0)
    lose(one, 0, now=102.0)
    assert lose(one, 1, now=103.0) == ["worker 1 was killed; nobody is left: new workers take what the servers have"]
    row = begin_anew(one, 105.5)
    assert (row["step"], row["steps"], row["leaves"], row["seconds"]) == (7, 0, 0, 2.5)
    assert one.losses.seconds == 2.5


def test_when_all_servers_die_with_the_workers_steps_are_done_again() -> None:
    one = machine()
    one.handle(m.Checkpointed(5, "step-5", "d", None, number=1), 100.0)
    one.handle(m.Heartbeat(0, 7, 0, "forward", 0.1), 101.0)
    *_, last = lose(one, 0, 1, 2, 3, now=103.0)
    assert (
        last == "server 3 was killed; nobody is left: new workers are started, and go back to the checkpoint of step 5"
    )
    row = begin_anew(one, 105.5)
    assert (row["step"], row["steps"], row["leaves"], row["seconds"]) == (5, 2, 16, 5.5)
    assert one.losses.recomputed_leaves == 16
