"""The supervisor's decisions, without a process."""

from __future__ import annotations

from lockstep.evaluate import LeafResult
from lockstep.supervisor import machine as m


def machine(workers: int = 2) -> m.Machine:
    return m.Machine(num_workers=workers, num_leaves=8, num_evaluation_leaves=3, secret="s")


def ready(one: m.Machine) -> m.Machine:
    for worker in range(one.num_workers):
        one.handle(m.Ready(worker, f"host:{worker}"))
    return one


def sent(actions: list[m.Action], kind: str) -> list[int]:
    return [a.worker for a in actions if isinstance(a, m.Send) and a.message["type"] == kind]


def test_the_first_generation_waits_for_all_and_does_not_depend_on_their_order() -> None:
    generations = []
    for order in ([0, 1, 2], [2, 0, 1]):
        one = machine(3)
        assert one.handle(m.Ready(order[0], f"host:{order[0]}")) == []
        assert one.handle(m.Ready(order[1], f"host:{order[1]}")) == []
        actions = one.handle(m.Ready(order[2], f"host:{order[2]}"))
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
    assert one.best == {"top1": 0.8, "step": 5}
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
    same = ready(machine())
    same.handle(m.Finished(1, 9, "aaaa"))
    same.handle(m.Finished(0, 9, "aaaa"))
    assert same.outcome == m.Outcome("finished", "aaaa")


def test_the_first_cause_wins() -> None:
    one = ready(machine())
    one.handle(m.Raised(1, "boom", "step 3", user=False))
    assert one.handle(m.Gone(0, "was killed by SIGKILL")) == []
    assert one.outcome is not None
    assert (one.outcome.worker, one.outcome.cause) == (1, "step 3: boom")


def test_a_stop_ends_with_the_checkpoint_that_was_asked_for() -> None:
    one = ready(machine())
    assert sent(one.handle(m.StopRequested("SIGINT")), "checkpoint") == [0]
    one.handle(m.Checkpointed(4, "step-4", "dddd", None))  # a planned one that was under way
    assert not one.outcome
    actions = one.handle(m.Checkpointed(5, "step-5", "eeee", "stop"))
    assert one.outcome == m.Outcome("stopped", "eeee", "SIGINT")
    assert isinstance(actions[0], m.KeepCheckpoint)


def test_a_stop_before_the_first_generation_waits_for_it() -> None:
    one = machine()
    one.handle(m.Ready(0, "a"))
    assert one.handle(m.StopRequested("SIGTERM")) == []
    assert sent(one.handle(m.Ready(1, "b")), "checkpoint") == [0]


def test_a_checkpoint_that_fails_is_a_warning_unless_we_are_stopping() -> None:
    one = ready(machine())
    assert one.handle(m.CheckpointFailed(3, "disk full", None)) == [
        m.Warn("the checkpoint of step 3 could not be written: disk full")
    ]
    one.handle(m.StopRequested("SIGINT"))
    one.handle(m.CheckpointFailed(4, "disk full", "stop"))
    assert one.outcome is not None
    assert one.outcome.state == "failed"
