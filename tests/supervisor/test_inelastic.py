"""Where a launcher decides who lives: the first death ends the job, with a checkpoint where someone can write it."""

from __future__ import annotations

from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.scores import Scores
from tests.supervisor.test_machine import build, sent


def machine(servers: int = 0, is_ready: bool = True) -> Machine:
    """Two workers, under a launcher."""
    one = build(2, num_servers=servers, scores=Scores(2), replace=False, is_elastic=False)
    for action in one.start():
        assert isinstance(action, m.Start)
        one.handle(m.Placed(action.worker))
        if is_ready:
            one.handle(m.Ready(action.worker, f"host:{action.worker}", 0))
    return one


def form(one: Machine, worker: int, step: int) -> list[m.Action]:
    """The survivor promises, and the generation without the dead is announced."""
    assert one.generation is not None
    return one.handle(m.Promised(worker, one.generation.number + 1, step, ()))


def test_a_death_ends_the_job_after_a_checkpoint_of_the_survivors() -> None:
    one = machine()
    actions = one.handle(m.Gone(1, "has ended", is_death=True))
    assert not [action for action in actions if isinstance(action, m.Start | m.End)]
    assert [action.row["fatal"] for action in actions if isinstance(action, m.Record)] == [True]
    assert sent(form(one, 0, 4), "checkpoint") == [0]
    (keep, end) = one.handle(m.Checkpointed(4, "step-4", "digest", "stop", 2))
    assert isinstance(keep, m.KeepCheckpoint)
    assert end == m.End(m.Outcome("failed", None, "has ended", 1, died=True))


def test_the_launchers_signal_after_a_death_does_not_cut_the_checkpoint_off() -> None:
    """torchrun tells rank 0 to end as soon as another rank has died; a second signal ends at once."""
    one = machine()
    one.handle(m.Gone(1, "has ended", is_death=True))
    assert not [a for a in one.handle(m.StopRequested("SIGTERM")) if isinstance(a, m.End)]
    form(one, 0, 4)
    ends = [a for a in one.handle(m.Checkpointed(4, "step-4", "digest", "stop", 2)) if isinstance(a, m.End)]
    assert [end.outcome.state for end in ends] == ["failed"]
    again = machine()
    again.handle(m.Gone(1, "has ended", is_death=True))
    again.handle(m.StopRequested("SIGTERM"))
    assert [a.outcome.state for a in again.handle(m.StopRequested("SIGTERM")) if isinstance(a, m.End)] == ["stopped"]


def test_a_death_after_the_signal_is_still_a_stop() -> None:
    """When all are told to end, some may go before the checkpoint is written."""
    one = machine()
    one.handle(m.StopRequested("SIGTERM"))
    one.handle(m.Gone(1, "has ended", is_death=True))
    form(one, 0, 4)
    ends = [a for a in one.handle(m.Checkpointed(4, "step-4", "digest", "stop", 2)) if isinstance(a, m.End)]
    assert ends == [m.End(m.Outcome("stopped", "digest", "SIGTERM"))]


def test_a_death_before_the_signal_is_still_a_failure_when_nobody_is_left() -> None:
    """A launcher decides by it whether it starts all of them anew."""
    one = machine()
    one.handle(m.Gone(1, "has ended", is_death=True))
    one.handle(m.StopRequested("SIGTERM"))
    ends = [a for a in one.handle(m.Gone(0, "was killed", is_death=True)) if isinstance(a, m.End)]
    assert [end.outcome.state for end in ends] == ["failed"]


def test_a_death_in_the_set_up_ends_the_job_at_once() -> None:
    one = machine(is_ready=False)
    ends = [a for a in one.handle(m.Gone(1, "has ended", is_death=True)) if isinstance(a, m.End)]
    assert ends == [m.End(m.Outcome("failed", None, "has ended", 1, died=True))]
    stopped = machine(is_ready=False)
    stopped.handle(m.StopRequested("SIGTERM"))
    ends = [a for a in stopped.handle(m.Gone(1, "has ended", is_death=True)) if isinstance(a, m.End)]
    assert ends == [m.End(m.Outcome("stopped", None, "SIGTERM"))]


def test_a_checkpoint_that_cannot_be_written_changes_nothing_about_the_cause() -> None:
    one = machine()
    one.handle(m.Gone(1, "has ended", is_death=True))
    form(one, 0, 4)
    warning, end = one.handle(m.CheckpointFailed(4, "disk full", "stop"))
    assert isinstance(warning, m.Warn)
    assert end == m.End(m.Outcome("failed", None, "has ended", 1, died=True))


def test_a_server_that_dies_ends_the_job_too() -> None:
    one = machine(servers=1)
    actions = one.handle(m.Gone(2, "has ended", is_death=True))
    assert not [action for action in actions if isinstance(action, m.Start | m.End)]
    assert sent(actions, "checkpoint") == [0]


def test_a_death_where_nothing_is_trained_ends_the_job_at_once() -> None:
    one = machine()
    one.saving.required = False
    ends = [a for a in one.handle(m.Gone(1, "has ended", is_death=True)) if isinstance(a, m.End)]
    assert ends == [m.End(m.Outcome("failed", None, "has ended", 1, died=True))]
