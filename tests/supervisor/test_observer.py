"""The evaluator beside the workers, without a process."""

from __future__ import annotations

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.observer import MAX_FAILURES, Observer
from lockstep.supervisor.scores import Scores
from tests.supervisor.test_machine import build, sent

EVALUATOR = 2


def machine() -> Machine:
    """Two workers that train, and an evaluator that is ready."""
    one = build(2, scores=Scores(2), observer=Observer(num_leaves=2))
    for action in one.start():
        assert isinstance(action, m.Start)
        one.handle(m.Placed(action.worker))
    for worker in range(2):
        one.handle(m.Ready(worker, f"host:{worker}", 0))
    assert one.generation is not None
    one.handle(m.Ready(EVALUATOR, "host", -1))
    return one


def checkpointed(one: Machine, step: int) -> list[m.Action]:
    return one.handle(m.Checkpointed(step, f"step-{step}", "digest", None, 1))


def evaluate(one: Machine, step: int, top1: int, evaluator: int = EVALUATOR) -> list[m.Action]:
    one.handle(m.Evaluation(evaluator, step, 0, LeafResult(10, top1, 10, 1.0)))
    return one.handle(m.Evaluation(evaluator, step, 1, LeafResult(10, top1, 10, 1.0)))


def rows(actions: list[m.Action]) -> list[tuple[int, float]]:
    found = [action.row for action in actions if isinstance(action, m.Record)]
    return [(row["step"], row["top1"]) for row in found if row["kind"] == "eval"]


def state(one: Machine) -> str:
    return "running" if one.outcome is None else one.outcome.state


def finish(one: Machine) -> None:
    for worker in range(2):
        one.handle(m.Finished(worker, 9, "d"))
    checkpointed(one, 9)


def test_it_is_given_one_checkpoint_at_a_time_and_then_the_newest() -> None:
    """F64: what comes in between is left out, and nobody waits."""
    one = machine()
    assert sent(checkpointed(one, 2), "evaluate") == [EVALUATOR]
    assert sent(checkpointed(one, 3), "evaluate") == []
    assert sent(checkpointed(one, 4), "evaluate") == []
    assert one.observer is not None
    assert one.observer.names == {"step-2", "step-4"}  # these are not deleted
    done = evaluate(one, 2, top1=8)
    assert rows(done) == [(2, 0.8)]
    assert [a.message["name"] for a in done if isinstance(a, m.Send)] == ["step-4"]
    assert rows(evaluate(one, 4, top1=6)) == [(4, 0.6)]
    assert one.scores.best == {"top1": 0.8, "step": 2}
    assert one.observer.left_out == 1


def test_the_end_waits_for_what_it_is_at_and_the_workers_evaluate_the_last_step() -> None:
    one = machine()
    checkpointed(one, 5)
    finish(one)
    assert state(one) == "running"
    evaluate(one, 5, top1=8)
    assert state(one) == "finished"


def test_one_that_is_not_ready_holds_up_nobody() -> None:
    one = machine()
    checkpointed(one, 5)
    one.handle(m.Gone(EVALUATOR, "was killed", is_death=True))
    finish(one)
    assert state(one) == "finished"


def test_one_that_dies_is_replaced_and_the_next_begins_with_what_it_was_at() -> None:
    one = machine()
    checkpointed(one, 5)
    one.handle(m.Evaluation(EVALUATOR, 5, 0, LeafResult(10, 1, 10, 1.0)))
    actions = one.handle(m.Gone(EVALUATOR, "was killed by SIGKILL", is_death=True))
    assert m.Start(3, "evaluator") in actions
    assert not sent(actions, "propose")
    assert sent(one.handle(m.Ready(3, "host", -1)), "evaluate") == [3]
    assert rows(evaluate(one, 5, top1=7, evaluator=3)) == [(5, 0.7)]
    assert one.losses.deaths == 0


def test_after_some_failures_training_goes_on_without() -> None:
    one = machine()
    checkpointed(one, 5)
    for number in range(MAX_FAILURES):
        actions = one.handle(m.Gone(EVALUATOR + number, "ended with exit code 1", is_death=False))
    assert one.outcome is None
    assert one.observer is None
    assert not [action for action in actions if isinstance(action, m.Start)]
    assert [action.text for action in actions if isinstance(action, m.Warn)]


def test_what_it_cannot_do_is_said_at_once() -> None:
    one = machine()
    actions = one.handle(m.Raised(EVALUATOR, "there is no file", "set-up", user=True))
    warnings = [action.text for action in actions if isinstance(action, m.Warn)]
    assert len(warnings) == 1
    assert "there is no file" in warnings[0]
    assert one.outcome is None
