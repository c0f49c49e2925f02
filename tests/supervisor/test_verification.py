"""Who is wrong when bits differ, and when that cannot be said."""

from __future__ import annotations

from lockstep.evaluate import LeafResult
from lockstep.supervisor import events as m
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores
from lockstep.supervisor.verification import (
    Agreed,
    Disputed,
    Replay,
    Report,
    Undecided,
    Unnamed,
    Verdict,
    Verification,
    Wrong,
)
from tests.supervisor.test_machine import build


def judge(*reports: Report) -> tuple[Verification, Verdict | None]:
    verification, members = Verification(0), list(range(len(reports)))
    for worker, report in enumerate(reports[:-1]):
        assert verification.report(worker, report, members) is None
    return verification, verification.report(len(reports) - 1, reports[-1], members)


def answer(verification: Verification, *answers: Report | Replay) -> Verdict | None:
    verdict = None
    for worker, one in enumerate(answers):
        assert verdict is None
        verdict = verification.answer(worker, one, list(range(len(answers))))
    return verdict


def test_equal_digests_are_agreement() -> None:
    assert judge(Report("s", {0: "a", 4: "b"}), Report("s", {4: "b", 0: "a"}))[1] == Agreed()


def test_the_majority_of_states_is_right() -> None:
    _, verdict = judge(Report("s", {}), Report("t", {}), Report("s", {}))
    assert isinstance(verdict, Wrong)
    assert list(verdict.members) == [1]


def test_of_two_states_a_replay_decides() -> None:
    """The one that departed first spoiled it for the other."""
    verification, verdict = judge(Report("s", {}), Report("t", {}))
    assert isinstance(verdict, Disputed)
    assert verdict.message["replay"]
    wrong = answer(verification, Replay("r", 7), Replay("r", 6))
    assert isinstance(wrong, Wrong)
    assert list(wrong.members) == [1]
    assert "step 6" in wrong.members[1]


def test_a_replay_finds_a_state_that_no_leaf_has_seen_yet() -> None:
    verification, _ = judge(Report("s", {}), Report("t", {}))
    wrong = answer(verification, Replay("t", None), Replay("t", None))
    assert isinstance(wrong, Wrong)
    assert list(wrong.members) == [0]


def test_replays_that_differ_decide_nothing() -> None:
    verification, _ = judge(Report("s", {}), Report("t", {}))
    assert isinstance(answer(verification, Replay("s", None), Replay("t", None)), Undecided)
    verification, _ = judge(Report("s", {}), Report("t", {}))
    assert isinstance(answer(verification, Replay("r", 6), Replay("r", 6)), Undecided)


def test_if_not_all_can_replay_the_run_goes_back_once_and_nobody_is_named() -> None:
    verification, _ = judge(Report("s", {}), Report("t", {}))
    assert answer(verification, Replay("r", 3), Replay("", None)) == Unnamed()
    verification.reset()
    for worker, state in enumerate("st"):
        verification.report(worker, Report(state, {}), [0, 1])
    assert isinstance(answer(verification, Replay("r", 3), Replay("", None)), Undecided)


def test_a_leaf_with_two_digests_is_computed_again_by_all() -> None:
    for size in (2, 3):
        reports = [Report("s", {0: "a", 4: "b"}), Report("s", {4: "x", 0: "a"}), Report("s", {})][:size]
        verification, verdict = judge(*reports)
        assert verdict == Disputed({"type": "dispute", "replay": False, "leaves": [4]})
        wrong = answer(verification, *[Report("s", {4: "b"})] * size)
        assert isinstance(wrong, Wrong)
        assert list(wrong.members) == [1]
        assert "leaf 4" in wrong.members[1]


def test_a_machine_that_is_always_wrong_is_outvoted_and_with_two_nobody_is_believed() -> None:
    verification, _ = judge(Report("s", {4: "b"}), Report("s", {4: "x"}), Report("s", {}))
    wrong = answer(verification, Report("s", {4: "b"}), Report("s", {4: "x"}), Report("s", {4: "b"}))
    assert isinstance(wrong, Wrong)
    assert list(wrong.members) == [1]
    verification, _ = judge(Report("s", {4: "b"}), Report("s", {4: "x"}))
    assert isinstance(answer(verification, Report("s", {4: "b"}), Report("s", {4: "x"})), Undecided)


def verified_machine(workers: int, *, test_leaves: int = 1, replace: bool = True) -> Machine:
    """A run that verifies its states, with all workers at step 0."""
    scores, verification = Scores(test_leaves), Verification(0)
    one = build(workers, saving=Saving(99), scores=scores, verification=verification, replace=replace)
    one.start()
    for worker in range(workers):
        one.handle(m.Ready(worker, "host", 0))
    return one


def agree(one: Machine, workers: int, step: int) -> list[m.Action]:
    """All report the same state."""
    return [one.handle(m.Verify(worker, 1, step, Report("s", {}))) for worker in range(workers)][-1]


def sent(actions: list[m.Action]) -> list[int]:
    return [action.worker for action in actions if isinstance(action, m.Send)]


def test_the_run_goes_back_with_those_who_have_the_snapshot_and_the_others_copy_it() -> None:
    one = verified_machine(3)
    actions = agree(one, 3, step=10)
    assert [a.message for a in actions if isinstance(a, m.Send)] == [{"type": "verified", "step": 10}] * 3
    one.handle(m.Gone(2, "died", is_death=True))
    for worker in (0, 1):
        one.handle(m.Promised(worker, 2, 12, ()))
    one.handle(m.Ready(3, "host", 0))
    for worker in (0, 1):
        one.handle(m.Promised(worker, 3, 14, ()))
    assert one.generation is not None
    assert (one.generation.ids, one.generation.joiners) == ([0, 1, 3], (3,))
    for worker in (0, 3):
        one.handle(m.Verify(worker, 3, 20, Report("s", {})))
    assert one.handle(m.Verify(1, 2, 20, Report("s", {}))) == []  # of a generation that is over
    actions = one.handle(m.Verify(1, 3, 20, Report("t", {})))
    assert m.Kill(1) in actions
    for worker in (0, 3):
        actions = one.handle(m.Promised(worker, 4, 20, (0, 1)))
    assert m.RollBack(10) in actions
    generation = one.generation
    assert (generation.step, generation.ids, generation.joiners) == (10, [0, 3], (3,))
    assert (generation.goes_back, generation.verified) == (True, 10)
    assert sorted(leaf for leaves in generation.first_leaves for leaf in leaves) == list(range(8))


def test_when_nobody_has_the_snapshot_all_begin_from_a_checkpoint_that_is_trusted() -> None:
    one = verified_machine(2)
    one.handle(m.Gone(1, "died", is_death=True))
    one.handle(m.Promised(0, 2, 5, ()))
    one.handle(m.Ready(2, "host", 0))
    one.handle(m.Promised(0, 3, 6, ()))
    for worker in (0, 2):
        one.handle(m.Verify(worker, 3, 10, Report(f"state of {worker}", {})))
    one.handle(m.Gone(0, "died", is_death=True))
    one.handle(m.Promised(2, 4, 10, ()))
    starting = [worker for worker in one.workers if one.workers[worker].address is None]
    one.handle(m.Ready(starting[0], "host", 0))
    one.handle(m.Promised(2, 5, 10, ()))
    for worker in (2, starting[0]):
        one.handle(m.Verify(worker, 5, 10, Report(f"state of {worker}", {})))
    for worker in (2, starting[0]):
        actions = one.handle(m.Answer(worker, 5, 10, Replay("", None)))
    assert sent(actions) == [2, starting[0]]
    for worker in (2, starting[0]):
        actions = one.handle(m.Promised(worker, 6, 10, ()))
    assert m.Kill(2) in actions
    assert m.RollBack(0) in actions
    assert one.verification is not None
    assert one.verification.verified == 0
    assert one.outcome is None
    starting = [worker for worker in one.workers if one.workers[worker].address is None]
    assert len(starting) == 2
    for worker in starting:
        one.handle(m.Ready(worker, "host", 0))
    assert one.generation is not None
    assert (one.generation.step, one.generation.ids) == (0, starting)


def test_a_checkpoint_of_wrong_bits_that_comes_late_is_discarded() -> None:
    """Its writer was slow: the run has gone back already, and begins to do those steps again."""
    one, _ = back_at_ten()

    def come(step: int, digest: str, number: int) -> list[m.Action]:
        return one.handle(m.Checkpointed(step, f"step-{step}", digest, None, number))

    assert come(15, "wrong", number=1) == [m.DiscardCheckpoint("step-15", "wrong")]
    assert come(10, "right", number=1) == [m.KeepCheckpoint(10, "step-10", "right")]
    assert come(15, "right", number=2) == [m.KeepCheckpoint(15, "step-15", "right")]


def back_at_ten() -> tuple[Machine, list[m.Action]]:
    """Three workers agreed at step 10; at step 20 worker 1 was wrong, and the others went back."""
    one = verified_machine(3, replace=False)
    agree(one, 3, step=10)
    for worker in range(3):
        one.handle(m.Evaluation(worker, 20, 0, LeafResult(10, 9, 10, 1.0)))
    for worker, state in enumerate("sts"):
        one.handle(m.Verify(worker, 1, 20, Report(state, {})))
    for worker in (0, 2):
        actions = one.handle(m.Promised(worker, 2, 20, ()))
    return one, actions


def test_going_back_forgets_evaluations_of_wrong_bits() -> None:
    one, actions = back_at_ten()
    assert m.RollBack(10) in actions
    assert (one.scores.evaluated, one.scores.best) == (-1, None)
    assert one.generation is not None
    assert one.generation.evaluated == -1


def test_when_all_die_after_a_verdict_the_wrong_steps_are_forgotten_too() -> None:
    one = verified_machine(2)
    agree(one, 2, step=10)
    one.handle(m.Evaluation(0, 20, 0, LeafResult(10, 9, 10, 1.0)))
    for worker in range(2):
        one.handle(m.Gone(worker, "died", is_death=True))
    for worker in (2, 3):
        actions = one.handle(m.Ready(worker, "host", 8))
    assert m.RollBack(10) in actions
    assert m.Trust(8) in actions  # what is done again is not verified until it is
    assert one.generation is not None
    assert (one.generation.step, one.generation.evaluated, one.generation.verified) == (8, -1, 8)


def test_two_results_of_a_test_leaf_wait_for_the_verdict() -> None:
    one = verified_machine(1, test_leaves=2)
    one.handle(m.Evaluation(0, 5, 0, LeafResult(10, 9, 10, 1.0)))
    assert one.handle(m.Evaluation(0, 5, 0, LeafResult(10, 8, 10, 1.0))) == []
    assert one.outcome is None
