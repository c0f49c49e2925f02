"""`--strategy averaging` with real processes: rounds of five local steps, the last one of four."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep import checkpoint, injection
from lockstep.config import Job
from tests.conftest import ENDLESS, RECIPE, digest_in, run, start, stop_and_compare
from tests.test_bad_input import refused
from tests.test_resume import rows_of, wait_for_step
from tests.test_survival import wait_for_generation

AVERAGING = ["--strategy", "averaging", "--local-steps", "5"]
OUTER = [*AVERAGING, "--outer", "nesterov"]


def trained(*options: str, workers: int, name: str = "run", inject: str = "", cwd: Path | None = None) -> str:
    """The digest of the weights, printed at the end."""
    with injection.rules(inject):
        return digest_in(run("train", *RECIPE, *options, "--workers", str(workers), "--run", name, cwd=cwd))


def rows_before(name: str) -> dict[str, list[tuple[int, float]]]:
    """Step and loss of all rows of training and evaluation."""
    return {kind: [(row["step"], row["loss"]) for row in rows_of(name, kind)] for kind in ("train", "eval")}


def state_of(name: str) -> str:
    newest, _ = checkpoint.newest_good(Path("runs") / name / "checkpoints")
    assert newest is not None
    return newest.state_digest


@pytest.fixture(scope="module")
def undisturbed_outer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run with one worker and an outer optimizer."""
    return trained(*OUTER, workers=1, cwd=tmp_path_factory.mktemp("outer"))


@pytest.mark.timeout(240)
def test_one_digest_for_any_number_of_workers(workspace: Path, undisturbed: tuple[str, list[float]]) -> None:
    """F51: N = 1, 2, 3, 4 to one digest, which is not that of allreduce; rows, evaluations and checkpoints are at ends
    of rounds, at the first after the step for which they are planned."""
    digests = {trained(*AVERAGING, workers=workers, name=str(workers)) for workers in (1, 2, 3, 4)}
    assert len(digests) == 1
    assert digests != {undisturbed[0]}
    for name in ("2", "3", "4"):
        assert rows_before(name) == rows_before("1")
        assert state_of(name) == state_of("1")
    assert [row["step"] for row in rows_of("4", "train")] == [5, 10, 15, 20, 24]
    assert [row["step"] for row in rows_of("4", "eval")] == [15, 24]
    assert {row["step"] for row in rows_of("4", "checkpoint")} >= {10, 20, 24}


def test_a_round_has_ten_steps_unless_something_else_is_asked_for(workspace: Path) -> None:
    """F51: there is a row at the end of every round, the last of which is shorter."""
    assert Job(workers=1).local_steps == 10
    trained("--strategy", "averaging", workers=2)
    assert [row["step"] for row in rows_of("run", "train")] == [10, 20, 24]


@pytest.mark.parametrize(
    "inject",
    [
        "kill worker=1 step=5 phase=forward",
        "kill worker=0 step=10 phase=optimizer",
        "kill worker=2 step=10 phase=exchange",
        "kill worker=0 step=10 phase=report",
        "kill worker=1 step=15 phase=evaluate",
        "kill worker=0 step=20 phase=exchange; kill worker=1 step=20 phase=backward",
    ],
    ids=lambda rule: rule.replace("worker=", "").replace("step=", "").replace("phase=", ""),
)
def test_a_killed_worker_leaves_the_digest_as_it_was(workspace: Path, undisturbed_outer: str, inject: str) -> None:
    """F51: in the local steps, in the exchange, after a round and in the last, shorter one."""
    assert trained(*OUTER, workers=3, inject=inject) == undisturbed_outer
    assert len(rows_of("run", "death")) == inject.count("kill")
    assert [row["step"] for row in rows_of("run", "train")] == [5, 10, 15, 20, 24]


def test_when_all_die_the_run_goes_on_from_the_end_of_a_round(workspace: Path, undisturbed_outer: str) -> None:
    inject = "kill worker=0 step=20 phase=forward; kill worker=1 step=20 phase=forward"
    assert trained(*OUTER, workers=2, inject=inject) == undisturbed_outer
    assert [row["step"] for row in rows_of("run", "generation")][-1] in (10, 15, 20)


@pytest.mark.timeout(240)
def test_a_joiner_goes_on_with_everything(workspace: Path) -> None:
    """After every round the members compare their states, the outer momentum included, and none is found wrong."""
    process = start("train", *ENDLESS, *OUTER, "--workers", "1", "--verify-every", "5", "--run", "run")
    wait_for_step(process, "run", 5)
    assert run("resize", "run", "2").returncode == 0
    wait_for_generation("run", 2)
    wait_for_step(process, "run", rows_of("run", "generation")[-1]["step"] + 11)
    stop_and_compare(process, "run", *OUTER)
    assert state_of("run") == state_of("run-whole")
    assert not rows_of("run", "corruption")


@pytest.mark.timeout(240)
def test_a_stop_at_the_end_of_a_round_and_a_resume_change_nothing(workspace: Path, undisturbed_outer: str) -> None:
    """An end inside a round is refused, and so is anything that would compute other bits."""
    arguments = ["train", *RECIPE, *OUTER, "--workers", "2", "--run", "run"]
    assert "12 steps end inside a round of 5 local steps: take --stop-at 10 or 15" in refused(
        run(*arguments, "--stop-at", "12")
    )
    assert not Path("runs").exists()
    assert digest_in(run(*arguments, "--stop-at", "10")) != undisturbed_outer
    for other in (["--local-steps", "4"], ["--outer", "none"], ["--strategy", "allreduce"]):
        assert "continue it with --strategy averaging, --local-steps 5, --outer nesterov" in refused(
            run("resume", "run", *other)
        )
    assert "take --stop-at 20 or 24" in refused(run("resume", "run", "--stop-at", "23"))
    assert digest_in(run("resume", "run", "--workers", "3")) == undisturbed_outer
    longer = run("resume", "run", "--steps", "26")
    assert longer.returncode == 0
    assert "it goes on inside a round, from step 24: a longer run would have other bits" in longer.stderr
    assert [row["step"] for row in rows_of("run", "train")] == [5, 10, 15, 20, 24, 25, 26]


@pytest.mark.parametrize(
    ("rule", "workers", "why"),
    [
        ("flip-weights worker=1 step=10 phase=verify", 2, "its state has other bits"),
        ("flip-gradient worker=1 step=20", 2, "its gradient of leaf 2 had other bits"),
        ("flip-momentum worker=0 step=20 phase=verify", 3, "its state has other bits"),
        ("flip-gradient worker=0 step=20", 3, "its gradient of leaf 0 had other bits"),
    ],
)
def test_a_flipped_bit_is_found_also_between_rounds(
    workspace: Path, undisturbed_outer: str, rule: str, workers: int, why: str
) -> None:
    """Every 8 steps, so at 10, 20 and 24; by a replay of whole rounds where there are only two."""
    assert trained(*OUTER, "--verify-every", "8", workers=workers, inject=rule) == undisturbed_outer
    wrong = int(rule.split("worker=")[1].split()[0])
    assert [(row["worker"], row["why"]) for row in rows_of("run", "corruption")] == [(wrong, why)]
    assert [row["step"] for row in rows_of("run", "train")] == [5, 10, 15, 20, 24]
