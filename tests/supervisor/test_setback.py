"""What is said, and counted, when workers die, join, or are lost all at once. Without a process."""

from __future__ import annotations

from typing import Any

from lockstep.rounds import Rounds
from lockstep.supervisor import events as m
from lockstep.supervisor.ground import Ground
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.verification import Report, Verification
from tests.supervisor.test_machine import build

KILLED = "was killed by SIGKILL"


def running(workers: int = 2, leaves: int = 4, **options: Any) -> Machine:
    one = build(workers, leaves, **options)
    for action in one.start():
        if isinstance(action, m.Start):
            one.handle(m.Placed(action.worker), 100.0)
    for id_ in list(one.workers):
        one.handle(m.Ready(id_, f"host:{id_}", 0), 100.0)
    assert one.generation is not None
    return one


def told(actions: list[m.Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, m.Tell)]


def rows(actions: list[m.Action], kind: str) -> list[dict[str, Any]]:
    return [action.row for action in actions if isinstance(action, m.Record) and action.row["kind"] == kind]


def die(one: Machine, *ids: int, now: float = 0.0) -> list[str]:
    """What is said of each."""
    return [line for id_ in ids for line in told(one.handle(m.Gone(id_, KILLED, is_death=True), now))]


def begin_anew(one: Machine, step: int, now: float) -> list[m.Action]:
    """Those who were started have loaded the state of a step."""
    actions: list[m.Action] = []
    for id_ in list(one.workers):
        actions += one.handle(m.Ready(id_, f"host:{id_}", step), now)
    return actions


def test_the_last_one_that_dies_leaves_nobody_and_the_way_back_is_said_and_counted() -> None:
    """Everything between the checkpoint and being back at it was in vain, but for what is counted already."""
    one = running()
    one.handle(m.Checkpointed(400, "step-400", "d", None, number=1), 300.0)
    one.handle(m.Delay(0, 1, 410, 2.0), 305.0)
    one.handle(m.Reached(0, 420), 306.0)
    one.handle(m.Heartbeat(0, 423, 1, "forward", 0.1), 306.5)
    assert die(one, 1, 0, now=307.0) == [
        f"worker 1 {KILLED}; the others go on",
        f"worker 0 {KILLED}; nobody is left: new workers are started, and go back to the checkpoint of step 400",
    ]
    actions = begin_anew(one, 400, 310.4)
    assert told(actions) == ["workers 2 and 3 have joined: 2 workers, back at step 400: 23 steps are done again"]
    (generation,), (recovery,) = rows(actions, "generation"), rows(actions, "recovery")
    assert (generation["recomputed_leaves"], generation["joined"]) == (23 * 4, [2, 3])
    assert (recovery["step"], recovery["steps"], recovery["leaves"], recovery["seconds"]) == (400, 23, 92, 8.4)
    assert (one.losses.deaths, one.losses.joins, one.losses.recomputed_leaves) == (2, 2, 92)
    assert round(one.losses.seconds, 4) == 10.4


def test_a_second_loss_counts_only_what_was_done_since_the_first() -> None:
    one = running()
    one.handle(m.Checkpointed(400, "step-400", "d", None, number=1), 300.0)
    one.handle(m.Reached(0, 423), 306.0)
    die(one, 1, 0, now=307.0)
    begin_anew(one, 400, 310.0)
    one.handle(m.Reached(2, 410), 312.0)
    die(one, 2, 3, now=313.0)
    (recovery,) = rows(begin_anew(one, 400, 315.0), "recovery")
    assert (recovery["steps"], recovery["seconds"]) == (10, 5.0)


def test_without_a_checkpoint_it_goes_back_to_the_start() -> None:
    one = running(workers=1)
    one.handle(m.Reached(0, 7), 103.0)
    assert die(one, 0, now=104.0) == [
        f"worker 0 {KILLED}; nobody is left: new workers are started, and go back to the start"
    ]
    actions = begin_anew(one, 0, 106.0)
    assert told(actions) == ["worker 1 has joined: 1 worker, back at step 0: 7 steps are done again"]
    assert one.losses.seconds == 6.0


def test_of_a_round_of_local_steps_every_leaf_counts_once() -> None:
    one = running(workers=1, rounds=Rounds(10, 100))
    one.handle(m.Reached(0, 30), 103.0)
    die(one, 0, now=104.0)
    begin_anew(one, 0, 106.0)
    assert one.losses.recomputed_leaves == 3 * 4


def test_only_a_verified_checkpoint_is_promised() -> None:
    one = running(workers=1, verification=Verification(0))
    one.handle(m.Verify(0, 1, 10, Report("d", {})), 101.0)
    one.handle(m.Checkpointed(8, "step-8", "d", None, number=1), 102.0)
    one.handle(m.Checkpointed(16, "step-16", "d", None, number=1), 103.0)
    assert die(one, 0)[0].endswith("go back to the checkpoint of step 8")


def test_who_is_left_without_a_replacement() -> None:
    one = running(replace=False)
    assert die(one, 0, 1) == [f"worker 0 {KILLED}; the others go on", f"worker 1 {KILLED}; nobody is left"]
    assert one.outcome is not None


def test_before_the_first_step_nobody_goes_on() -> None:
    one = build(1)
    one.start()
    assert die(one, 0) == [f"worker 0 {KILLED}; another one is started"]


def test_a_replacement_and_a_resize_are_told_and_the_first_generation_is_not() -> None:
    one = build(2, 16)
    for id_ in (0, 1):
        one.start()
        assert not told(one.handle(m.Ready(id_, f"host:{id_}", 0)))
    assert one.generation is not None
    die(one, 1)
    one.handle(m.Promised(0, 2, 5, ()))
    one.handle(m.Ready(2, "host:2", 0))
    assert told(one.handle(m.Promised(0, 3, 6, ()))) == ["worker 2 has joined: 2 workers"]
    assert told(one.handle(m.Resize(8))) == ["`lockstep resize`: 8 workers from now on"]
    for id_ in range(3, 9):
        one.handle(m.Ready(id_, f"host:{id_}", 0))
    assert one.forming is not None
    number = one.forming.number
    one.handle(m.Promised(0, number, 8, ()))
    assert told(one.handle(m.Promised(2, number, 8, ()))) == ["6 workers have joined: 8 workers"], "one line for all"


def test_a_straggler_that_joins_again_is_no_news() -> None:
    one = running()
    one.handle(m.Outrun(1, 1))
    one.handle(m.Promised(0, 2, 9, ()))
    actions = one.handle(m.Promised(1, 2, 3, ()))
    assert rows(actions, "generation")[0]["joined"] == [1]
    assert not told(actions)


def test_a_state_of_an_earlier_session_makes_all_of_this_one_vain() -> None:
    """As when the newest checkpoints turn out to be damaged."""
    ground = Ground()
    ground.keep(40, 10.0, is_stored=True)
    ground.reach(45)
    assert ground.go_back(30, 17.0) == (15, 7.0)
