"""The supervisor's decisions, without a process."""

from __future__ import annotations

from typing import Any

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.probes import Probe
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores


def build(workers: int, leaves: int = 8, **options: Any) -> Machine:
    """A machine that has started nothing yet."""
    usual = {"saving": Saving(9), "scores": Scores(3)}
    return Machine(num_workers=workers, num_leaves=leaves, secret="s", **{**usual, **options})


def machine(workers: int = 2) -> Machine:
    one = build(workers)
    for action in one.start():
        assert isinstance(action, m.Start)
        one.handle(m.Placed(action.worker))
    return one


def tick(one: Machine, start: float, end: float) -> list[m.Action]:
    """Time passes, and the clock is looked at every half second."""
    actions = []
    for half_second in range(int(2 * start), int(2 * end) + 1):
        actions += one.handle(m.Tick(), now=half_second / 2)
    return actions


def ready(one: Machine) -> Machine:
    for worker in range(one.num_workers):
        one.handle(m.Ready(worker, f"host:{worker}", 0))
    assert one.generation is not None
    return one


def sent(actions: list[m.Action], kind: str) -> list[int]:
    return [a.worker for a in actions if isinstance(a, m.Send) and a.message["type"] == kind]


def test_the_first_generation_waits_for_all_and_does_not_depend_on_their_order() -> None:
    generations = []
    for order in ([0, 1, 2], [2, 0, 1]):
        one = machine(3)
        assert one.handle(m.Ready(order[0], f"host:{order[0]}", 0)) == []
        assert one.handle(m.Ready(order[1], f"host:{order[1]}", 0)) == []
        actions = one.handle(m.Ready(order[2], f"host:{order[2]}", 0))
        assert sent(actions, "generation") == [0, 1, 2]
        generations.append(one.generation)
    assert generations[0] == generations[1]
    assert generations[0] is not None
    assert [member.id for member in generations[0].members] == [0, 1, 2]


def test_an_evaluation_is_announced_when_every_leaf_is_there_and_the_best_is_kept() -> None:
    one = ready(machine())

    def evaluate(step: int, top1: int) -> list[m.Action]:
        for leaf in (2, 0):
            assert one.handle(m.Evaluation(0, step, leaf, LeafResult(10, top1, 10, 1.0))) == []
        return one.handle(m.Evaluation(1, step, 1, LeafResult(10, top1, 10, 1.0)))

    first, second = evaluate(5, 8), evaluate(10, 6)
    assert sent(first, "evaluated") == [0, 1]
    kinds = [a.message["type"] for a in first if isinstance(a, m.Send) and a.worker == 0]
    assert kinds == ["checkpoint", "evaluated"]  # the state of the best evaluation is kept
    assert sent(second, "checkpoint") == []
    assert one.scores.best == {"top1": 0.8, "step": 5}
    row = next(action.row for action in second if isinstance(action, m.Record))
    assert (row["top1"], row["best_top1"], row["examples"]) == (0.6, 0.8, 30)


def test_an_evaluation_leaf_with_two_results_is_a_failure() -> None:
    one = ready(machine())
    one.handle(m.Evaluation(0, 5, 0, LeafResult(10, 8, 10, 1.0)))
    assert one.handle(m.Evaluation(1, 5, 0, LeafResult(10, 8, 10, 1.0))) == []
    one.handle(m.Evaluation(1, 5, 0, LeafResult(10, 7, 10, 1.0)))
    assert one.outcome is not None
    assert one.outcome.state == "failed"


def test_replicas_that_differ_at_the_end_are_a_failure() -> None:
    one = ready(machine())
    assert one.handle(m.Finished(0, 9, "aaaa")) == []
    (end,) = one.handle(m.Finished(1, 9, "bbbb"))
    assert isinstance(end, m.End)
    assert end.outcome.state == "failed"
    assert "replicas differ" in end.outcome.cause


def test_a_job_is_finished_when_all_members_are_and_the_last_checkpoint_is_safe() -> None:
    one = ready(machine())
    one.handle(m.Finished(1, 9, "aaaa"))
    assert sent(one.handle(m.Finished(0, 9, "aaaa")), "checkpoint") == [0]
    assert not one.outcome
    one.handle(m.Checkpointed(9, "step-9", "aaaa", "final", number=1))
    assert one.outcome == m.Outcome("finished", "aaaa")


def test_a_last_checkpoint_that_cannot_be_written_is_tried_again_and_then_a_failure() -> None:
    one = ready(machine())
    assert sent(one.handle(m.CheckpointFailed(9, "disk full", None)), "checkpoint") == [0]
    assert sent(one.handle(m.CheckpointFailed(9, "disk full", "final")), "checkpoint") == [0]
    one.handle(m.CheckpointFailed(9, "disk full", "final"))
    assert one.outcome is not None
    assert one.outcome.state == "failed"
    assert "training is done, but the checkpoint of step 9" in one.outcome.cause


def test_the_first_cause_wins() -> None:
    one = ready(machine())
    one.handle(m.Raised(1, "boom", "step 3", user=False))
    assert one.handle(m.Gone(0, "was killed by SIGKILL", is_death=True)) == []
    assert one.outcome is not None
    assert (one.outcome.worker, one.outcome.cause) == (1, "step 3: boom")


def test_a_stop_ends_with_the_checkpoint_that_was_asked_for() -> None:
    one = ready(machine())
    assert sent(one.handle(m.StopRequested("SIGINT")), "checkpoint") == [0]
    one.handle(m.Checkpointed(4, "step-4", "dddd", None, number=1))  # a planned one that was under way
    assert not one.outcome
    actions = one.handle(m.Checkpointed(5, "step-5", "eeee", "stop", number=1))
    assert one.outcome == m.Outcome("stopped", "eeee", "SIGINT")
    assert isinstance(actions[0], m.KeepCheckpoint)


def test_a_stop_before_the_first_generation_waits_for_it() -> None:
    one = machine()
    one.handle(m.Ready(0, "a", 0))
    assert one.handle(m.StopRequested("SIGTERM")) == []
    assert sent(one.handle(m.Ready(1, "b", 0)), "checkpoint") == [0]


def test_a_checkpoint_that_fails_is_a_warning_unless_we_are_stopping() -> None:
    one = ready(machine())
    assert one.handle(m.CheckpointFailed(3, "disk full", None)) == [
        m.Warn(
            "the checkpoint of step 3 could not be written: disk full; training goes on, and it is tried again in 10 s"
        )
    ]
    assert sent(tick(one, 0, 9.5), "checkpoint") == []
    assert sent(tick(one, 10, 30), "checkpoint") == [0]  # once
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.CheckpointFailed(4, "disk full", "stop"))
    assert one.outcome is not None
    assert one.outcome.state == "failed"


def evaluate(one: Machine, step: int) -> None:
    for leaf in range(3):
        one.handle(m.Evaluation(0, step, leaf, LeafResult(10, 8, 10, 1.0)))


def promise(one: Machine, worker: int, step: int, held: tuple[int, ...] = ()) -> list[m.Action]:
    return one.handle(m.Promised(worker, one._number, step, held))


def test_a_death_leaves_what_is_held_and_gives_only_the_missing_leaves_away() -> None:
    one = ready(machine(4))
    actions = one.handle(m.Gone(1, "died", is_death=True))
    assert sent(actions, "propose") == [0, 2, 3]
    assert [action.worker for action in actions if isinstance(action, m.Start)] == [4]
    promise(one, 0, 5, (0, 1))
    promise(one, 2, 5, (4,))
    announced = promise(one, 3, 5, (6, 7))
    assert sent(announced, "generation") == [0, 2, 3]
    generation = one.generation
    assert generation is not None
    assert (generation.number, generation.step, generation.ids) == (2, 5, [0, 2, 3])
    assert generation.first_leaves == ((0, 1, 2), (4, 5), (3, 6, 7))
    assert generation.leaves(1, 6) == [3, 4, 5]  # from the next step on all share alike


def test_a_member_behind_is_sent_the_result_and_keeps_its_leaves() -> None:
    one = ready(machine(4))
    one.handle(m.Gone(0, "died", is_death=True))
    promise(one, 1, 6)
    promise(one, 2, 5, (4, 5))
    promise(one, 3, 6, (6,))
    generation = one.generation
    assert generation is not None
    assert (generation.step, generation.behind, generation.up_to_date) == (6, (2,), [0, 2])
    assert generation.first_leaves == ((1, 2, 3), (4, 5), (0, 6, 7))
    assert generation.leaves(1, 5) == []


def test_a_replacement_joins_without_holding_anyone_up() -> None:
    one = ready(machine(2))
    one.handle(m.Gone(1, "died", is_death=True))
    assert sent(promise(one, 0, 3, (0,)), "generation") == [0]
    assert sent(one.handle(m.Ready(2, "host:2", 0)), "propose") == [0]
    announced = promise(one, 0, 8, (0, 1))
    assert sent(announced, "generation") == [0, 2]
    assert one.generation is not None
    assert one.generation.joiners == (2,)


def test_a_crash_loop_ends_with_its_first_cause() -> None:
    one = machine(1)
    worker = 0
    while one.outcome is None:
        one.handle(m.Gone(worker, f"died of cause {worker}", is_death=True))
        worker += 1
        assert worker < 20
    assert "the first: worker 0 died of cause 0" in one.outcome.cause


def test_progress_forgives_deaths() -> None:
    one = ready(machine(1))
    for worker in range(30):
        one.handle(m.Heartbeat(worker, worker, 0, "forward", 0.1))
        one.handle(m.Gone(worker, "died", is_death=True))
        one.handle(m.Ready(worker + 1, "host", 0))
    assert one.outcome is None
    assert one.losses.deaths == 30


def test_without_replacement_the_last_death_is_the_end() -> None:
    one = build(2, replace=False)
    one.start()
    for worker in (0, 1):
        one.handle(m.Ready(worker, "host", 0))
    assert not [a for a in one.handle(m.Gone(0, "died", is_death=True)) if isinstance(a, m.Start)]
    promise(one, 1, 0)
    one.handle(m.Gone(1, "died too", is_death=True))
    assert one.outcome is not None
    assert "all workers are dead" in one.outcome.cause


def test_silence_and_standing_still_are_different_from_being_slow() -> None:
    """A member that waits for others, or has not finished its first leaf (a compilation), is not stuck."""
    one = ready(machine(2))
    one.handle(m.Heartbeat(0, 3, 0, "forward", 0.1), now=0.0)
    one.handle(m.Heartbeat(1, 3, None, "exchange", 0.1), now=0.0)
    for second in range(1, 10):
        one.handle(m.Heartbeat(0, 3, 0, "forward", 0.1), now=second)
        one.handle(m.Heartbeat(1, 3, None, "exchange", 0.1), now=second)
        assert one.handle(m.Tick(), now=second + 0.9) == []
    one.handle(m.Heartbeat(0, 3, 0, "forward", 0.1), now=10.5)
    one.handle(m.Heartbeat(1, 3, None, "exchange", 0.1), now=10.5)
    actions = one.handle(m.Tick(), now=10.6)
    assert [action.worker for action in actions if isinstance(action, m.Kill)] == [0]
    promise(one, 1, 3)
    actions = tick(one, 11, 21)
    assert [action.worker for action in actions if isinstance(action, m.Kill)] == [1]

    slow = ready(machine(1))
    slow.handle(m.Heartbeat(0, 3, 0, "forward", 2.0), now=0.0)
    for second in range(40):
        slow.handle(m.Heartbeat(0, 3, 0, "forward", 2.0), now=float(second))
        assert tick(slow, second, second) == []  # 20 of its leaves have not passed
    compiling = ready(machine(1))
    for second in range(100):
        compiling.handle(m.Heartbeat(0, 0, 0, "forward", None), now=float(second))
        assert compiling.handle(m.Tick(), now=float(second)) == []


def test_of_two_that_cannot_reach_each_other_the_newest_goes() -> None:
    one = ready(machine(3))
    one.handle(m.LostPeer(0, 1, peer=2), now=5.0)
    one.handle(m.LostPeer(2, 1, peer=0), now=5.1)
    assert tick(one, 5, 8) == []  # a death may yet explain it
    actions = tick(one, 8.5, 8.5)
    assert [action.worker for action in actions if isinstance(action, m.Kill)] == [2]
    assert sent(actions, "propose") == [0, 1]


def test_a_death_explains_lost_connections() -> None:
    one = ready(machine(3))
    one.handle(m.LostPeer(0, 1, peer=2), now=5.0)
    one.handle(m.Gone(1, "died", is_death=True), now=5.2)
    promise(one, 0, 3)
    promise(one, 2, 3)
    assert tick(one, 5.5, 30) == []


def test_resizing_starts_or_ends_workers() -> None:
    one = ready(machine(2))
    assert [a.worker for a in one.handle(m.Resize(4)) if isinstance(a, m.Start)] == [2, 3]
    actions = one.handle(m.Resize(1))
    assert [a.worker for a in actions if isinstance(a, m.Kill)] == [1, 2, 3]
    assert sent(actions, "propose") == [0]


def test_resizing_keeps_those_who_have_the_state() -> None:
    one = ready(machine(2))
    one.handle(m.Gone(0, "died", is_death=True))  # 2 is started for it, and still importing
    promise(one, 1, 4)
    assert [a.worker for a in one.handle(m.Resize(1)) if isinstance(a, m.Kill)] == [2]
    assert one.members == [1]


def test_a_stop_is_not_overtaken_by_the_timer() -> None:
    one = ready(machine())
    one.handle(m.StopRequested("SIGINT"))
    (send,) = one.handle(m.CheckpointTime())
    assert isinstance(send, m.Send)
    assert send.message["reason"] == "stop"


def test_joiners_go_with_the_last_one_who_had_the_state() -> None:
    """Both fall silent at once: the one with the state is removed first, and the joiner with it."""
    one = ready(machine(2))
    one.handle(m.Gone(1, "died", is_death=True))
    promise(one, 0, 4)
    one.handle(m.Ready(2, "host:2", 0))
    promise(one, 0, 4)
    assert one.generation is not None
    assert one.generation.joiners == (2,)
    for worker in (0, 2):
        one.handle(m.Heartbeat(worker, 4, None, "exchange", None), now=0.0)
    one.handle(m.Ready(2, "host:2", 0))  # a new proposal, which the joiner answers without a state
    promise(one, 2, -1)
    actions = tick(one, 0, 30)
    assert {a.worker for a in actions if isinstance(a, m.Kill)} == {0, 2}
    assert len([a for a in actions if isinstance(a, m.Start)]) == 2
    assert one.outcome is None


def test_a_checkpoint_that_was_asked_for_is_asked_of_the_next_first_member_before_it_goes_on() -> None:
    one = ready(machine(3))
    evaluate(one, step=5)
    one.handle(m.Gone(0, "died", is_death=True))
    promise(one, 1, 5)
    actions = promise(one, 2, 5)
    kinds = [(a.worker, a.message["type"]) for a in actions if isinstance(a, m.Send)]
    assert kinds == [(1, "checkpoint"), (1, "generation"), (2, "generation")]
    one.handle(m.Checkpointed(5, "step-5", "d", "best", number=1))
    one.handle(m.Gone(1, "died", is_death=True))
    assert sent(promise(one, 2, 5), "checkpoint") == []


def test_a_joiner_learns_the_newest_figures() -> None:
    one = ready(machine(2))
    evaluate(one, step=5)
    one.handle(m.Gone(1, "died", is_death=True))
    promise(one, 0, 5)
    assert one.generation is not None
    assert (one.generation.evaluated, one.generation.best) == (5, {"top1": 0.8, "step": 5})


def test_what_deaths_cost_is_counted() -> None:
    one = ready(machine(2))
    one.handle(m.Gone(1, "died", is_death=True))
    actions = promise(one, 0, 3, (0, 1, 2, 3))
    (row,) = [a.row for a in actions if isinstance(a, m.Record)]
    assert (row["recomputed_leaves"], row["missing_leaves"], row["causes"], row["joined"]) == (4, 4, ["death"], [])
    one.handle(m.Delay(0, 2, 3, 0.25))
    one.handle(m.Ready(2, "host:2", 0))
    promise(one, 0, 5)
    assert (one.losses.deaths, one.losses.joins, one.losses.recomputed_leaves, one.losses.seconds) == (1, 1, 4, 0.25)


HERE, THERE = Probe("aa", {"processor": "X", "threads": 1}), Probe("bb", {"processor": "Y", "threads": 1})


def start_with(probes: list[Probe], **options: Any) -> tuple[Machine, list[m.Action]]:
    one = build(len(probes), **options)
    one.start()
    actions: list[m.Action] = []
    for worker, probe in enumerate(probes):
        actions += one.handle(m.Ready(worker, "host", 0, probe))
    return one, actions


def test_the_probe_of_most_workers_is_that_of_the_run_and_others_are_refused_by_name() -> None:
    one, actions = start_with([THERE, HERE, HERE])
    assert m.Adopt(HERE) in actions
    assert m.Kill(0) in actions
    assert one.members == [1, 2]
    (warning,) = [a.text for a in actions if isinstance(a, m.Warn)]
    assert warning.startswith("worker 0 is refused")
    assert "processor is Y there and X here" in warning
    assert not [a for a in actions if isinstance(a, m.Start)]  # another one like it would be refused too
    assert sent(one.handle(m.Ready(1, "host", 0, HERE)), "propose") == [1, 2]


def test_a_replacement_with_another_probe_is_refused() -> None:
    one, _ = start_with([HERE, HERE])
    one.handle(m.Gone(1, "died", is_death=True))
    promise(one, 0, 3)
    actions = one.handle(m.Ready(2, "host", 0, THERE))
    assert m.Kill(2) in actions
    assert sent(actions, "propose") == []
    assert one.members == [0]


def test_a_worker_refused_as_the_last_one_holds_nobody_up() -> None:
    one, _ = start_with([HERE, THERE], probe=HERE)
    assert one.members == [0]


def test_a_replacement_that_cannot_set_itself_up_ends_no_healthy_job() -> None:
    """Its data were pulled away, or a library is missing on its host: the others go on, and none is started for it."""
    for event in (
        m.Raised(2, "there is no directory data", "set-up", user=True),
        m.Gone(2, "ended with exit code 1", is_death=False),
    ):
        one = ready(machine(2))
        one.handle(m.Gone(1, "died", is_death=True))
        promise(one, 0, 4)
        actions = one.handle(event)
        assert one.outcome is None
        assert m.Kill(2) in actions
        assert not [a for a in actions if isinstance(a, m.Start)]
        (warning,) = [a.text for a in actions if isinstance(a, m.Warn)]
        assert warning.startswith("worker 2 is refused, because it ")
        one.handle(m.Raised(0, "boom", "step 4", user=False))
        assert one.outcome is not None


def test_a_run_is_not_continued_on_another_machine_unless_mixing_is_allowed() -> None:
    one, _ = start_with([THERE, THERE], probe=HERE)
    assert one.outcome is not None
    assert one.outcome.user
    assert "processor is Y there and X here" in one.outcome.cause
    assert "--allow-mixed" in one.outcome.cause
    mixed, actions = start_with([THERE, THERE], probe=HERE, allow_mixed=True)
    assert mixed.outcome is None
    assert mixed.members == [0, 1]
    assert [a.row["worker"] for a in actions if isinstance(a, m.Record) and a.row["kind"] == "mixed"] == [0, 1]


def test_with_a_minimum_training_begins_without_those_that_find_no_room_and_pauses_below_it() -> None:
    one = build(4, min_workers=2)
    one.start()
    for worker in (0, 1, 2):
        one.handle(m.Placed(worker))
    one.handle(m.Ready(0, "host:0", 0))
    one.handle(m.Ready(1, "host:1", 0))
    assert one.generation is None  # the third has room, so it is waited for
    assert sent(one.handle(m.Ready(2, "host:2", 0)), "generation") == [0, 1, 2]

    def die(worker: int) -> list[m.Action]:
        return one.handle(m.Gone(worker, "was lost", is_death=True))

    assert sent(die(2), "propose") == [0, 1]
    one.handle(m.Promised(0, 2, 0, ()))
    assert sent(one.handle(m.Promised(1, 2, 0, ())), "generation") == [0, 1]
    assert sent(die(1), "propose") == [0]
    assert one.handle(m.Promised(0, 3, 0, ())) == []  # one is too few
    assert sent(one.handle(m.Ready(3, "host:3", 0)), "propose") == [0]
    assert sent(one.handle(m.Promised(0, 4, 0, ())), "generation") == [0, 3]


def test_who_stops_a_job_that_waits_for_room_need_not_say_it_twice() -> None:
    one = build(2)
    one.start()
    one.handle(m.Placed(0))
    one.handle(m.StopRequested("SIGINT"))
    assert one.outcome is not None
    assert one.outcome.state == "stopped"


def test_a_process_that_waits_for_room_is_not_given_up() -> None:
    one = build(2, min_workers=1)
    one.start()
    one.handle(m.Placed(0))
    one.handle(m.Ready(0, "host:0", 0))
    one.handle(m.Heartbeat(0, 1, None, "exchange", None), 0.0)
    for second in range(400):
        one.handle(m.Heartbeat(0, 1, None, "exchange", None), float(second))
        assert one.handle(m.Tick(), float(second)) == []
    assert list(one.workers) == [0, 1]


def starts(actions: list[m.Action]) -> list[int]:
    return [a.worker for a in actions if isinstance(a, m.Start)]


def rows(actions: list[m.Action], kind: str) -> list[dict[str, object]]:
    return [a.row for a in actions if isinstance(a, m.Record) and a.row["kind"] == kind]


def with_guests(workers: int = 1, slots: int = 1, leaves: int = 8) -> Machine:
    """A running job that hosts have joined, each with one worker."""
    one = build(workers, leaves)
    for worker in starts(one.start()):
        one.handle(m.Placed(worker))
    for worker in range(workers):
        one.handle(m.Ready(worker, f"host:{worker}", 0))
    for slot in range(slots):
        for guest in starts(one.handle(m.Joined(f"h{slot}", 1))):
            one.handle(m.Placed(guest, f"h{slot}"))
            one.handle(m.Ready(guest, f"host:{guest}", 0))
            for member in one.members:
                promise(one, member, 4)
    return one


def test_a_host_that_joins_raises_the_number_of_workers_up_to_that_of_leaves() -> None:
    one = ready(machine(2))
    actions = one.handle(m.Joined("h", 4))
    assert starts(actions) == [2, 3, 4, 5]
    assert rows(actions, "host") == [{"kind": "host", "host": "h", "what": "joined", "slots": 4, "step": 0}]
    assert starts(one.handle(m.Joined("other", 4))) == [6, 7]  # eight leaves: the rest is spare
    assert starts(one.handle(m.Joined("late", 1))) == []


def test_a_host_that_leaves_is_no_death_and_its_workers_are_not_replaced() -> None:
    one = with_guests(workers=1, slots=2)
    assert one.members == [0, 1, 2]
    actions = one.handle(m.Left("h0", (1,), 2, is_loss=False))
    assert m.Kill(1) in actions
    assert starts(actions) == []
    assert rows(actions, "death") == []
    assert sent(actions, "propose") == [0, 2]
    promise(one, 0, 4)
    actions = promise(one, 2, 4)
    assert rows(actions, "generation")[0]["causes"] == ["leave"]
    assert (one.members, one.num_workers, one.losses.deaths) == ([0, 2], 2, 0)


def test_a_host_that_is_lost_counts_as_a_death_and_is_not_replaced_but_by_a_spare() -> None:
    one = with_guests(workers=1, slots=2, leaves=2)  # the second host is a spare
    assert one.members == [0, 1]
    actions = one.handle(m.Left("h0", (1,), 2, is_loss=True))
    assert [row["how"] for row in rows(actions, "death")] == ["was lost with its host h0"]
    assert starts(actions) == [2]
    one.handle(m.Placed(2, "h1"))
    promise(one, 0, 4)
    actions = one.handle(m.Left("h1", (2,), 1, is_loss=True))  # before it was ready: nobody has lost anything
    assert (starts(actions), rows(actions, "death"), sent(actions, "propose")) == ([], [], [])
    assert (one.members, one.num_workers, one.losses.deaths) == ([0], 1, 1)


def test_a_worker_that_dies_on_a_living_host_is_replaced() -> None:
    one = with_guests(workers=1, slots=1)
    assert starts(one.handle(m.Gone(1, "was killed by SIGKILL", is_death=True))) == [2]


def test_many_hosts_that_are_lost_at_once_are_no_crash_loop() -> None:
    one = with_guests(workers=1, slots=6)
    for number in range(6):
        one.handle(m.Left(f"h{number}", (number + 1,), 6 - number, is_loss=True))
    assert one.members == [0]
    assert starts(one.handle(m.Gone(0, "was killed by SIGKILL", is_death=True))) == [7]
    assert one.outcome is None


def test_a_worker_that_waits_for_a_host_which_goes_is_given_up() -> None:
    one = with_guests(workers=1, slots=1)
    assert starts(one.handle(m.Gone(1, "was killed by SIGKILL", is_death=True))) == [2]
    assert m.Kill(2) in one.handle(m.Left("h0", (), 1, is_loss=True))
    assert list(one.workers) == [0]


def test_what_is_wrong_with_a_host_that_joined_does_not_end_the_job() -> None:
    """Not even before the first generation, which does not wait for it any more."""
    for event in (
        m.Raised(1, "there is no file /own/model.py", "set-up", user=True),
        m.Gone(1, "ended with exit code 1", is_death=False),
    ):
        one = machine(1)
        assert starts(one.handle(m.Joined("h", 1))) == [1]
        one.handle(m.Placed(1, "h"))
        assert one.handle(m.Ready(0, "host:0", 0)) == []
        actions = one.handle(event)
        (warning,) = [a.text for a in actions if isinstance(a, m.Warn)]
        assert warning.startswith("worker 1 on h is refused, because it ")
        assert sent(actions, "generation") == [0]
        assert starts(actions) == []


def test_without_workers_of_its_own_a_job_begins_with_the_first_that_joins_and_waits_when_all_have_gone() -> None:
    one = build(0)
    assert one.start() == []
    assert starts(one.handle(m.Joined("bad", 1))) == [0]
    one.handle(m.Placed(0, "bad"))
    one.handle(m.Raised(0, "boom", "set-up", user=False))
    assert starts(one.handle(m.Joined("good", 1))) == [1]
    one.handle(m.Placed(1, "good"))
    assert sent(one.handle(m.Ready(1, "host:1", 0)), "generation") == [1]
    one.handle(m.Left("good", (1,), 0, is_loss=True))
    assert one.outcome is None
    assert starts(one.handle(m.Joined("next", 1))) == [2]
    one.handle(m.Placed(2, "next"))
    assert sent(one.handle(m.Ready(2, "host:2", 5)), "generation") == [2]  # from a checkpoint
    one.handle(m.Left("next", (2,), 0, is_loss=False))
    one.handle(m.StopRequested("SIGINT"))
    assert one.outcome == m.Outcome("stopped", None, "SIGINT")


def test_a_stop_that_waits_for_a_checkpoint_ends_when_nobody_is_left_to_write_it() -> None:
    one = with_guests(workers=0, slots=1)
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.Left("h0", (0,), 0, is_loss=True))
    assert one.outcome == m.Outcome("stopped", None, "SIGINT")


def test_where_nothing_is_trained_no_checkpoint_is_written() -> None:
    """Neither for the timer nor for a stop, which then is at once."""
    one = build(1, saving=Saving(9, required=False))
    one.start()
    one.handle(m.Placed(0))
    ready(one)
    assert one.handle(m.CheckpointTime()) == []
    assert one.handle(m.StopRequested("SIGINT")) == [m.End(m.Outcome("stopped", None, "SIGINT"))]
