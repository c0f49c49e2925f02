"""`lockstep diff`: where runs part, to the step and the tensor, and why."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import cli, differences, injection
from lockstep.config import Job, Schedule
from lockstep.differences import Difference
from lockstep.recipes import RECIPES
from lockstep.report.difference import Record, causes, parting, unrecorded
from lockstep.rerun import Found
from tests.conftest import RECIPE, run

TRAIN = ["train", *RECIPE, "--set", "evaluation.every_steps=0"]
PLAIN = "same at all 3 steps at which both have a digest, up to step 24"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parted")
    assert run(*TRAIN, "--workers", "1", "--run", "one", cwd=root).returncode == 0
    with injection.rules("kill worker=1 step=5 phase=exchange"):
        assert run(*TRAIN, "--workers", "2", "--run", "two", cwd=root).returncode == 0
    changed = ["--set", "schedule.warmup=0.5"]
    assert run(*TRAIN, "--workers", "2", "--run", "slower", *changed, cwd=root).returncode == 0
    assert run(*TRAIN, "--workers", "2", "--run", "seed", "--seed", "1", cwd=root).returncode == 0
    return root


@pytest.fixture
def here(trained: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(trained)
    yield trained
    os.chdir(before)


def test_runs_with_one_digest_are_the_same(here: Path) -> None:
    result = run("diff", "one", "two")
    assert (result.returncode, result.stdout) == (0, f"one and two are the {PLAIN}\n")


def test_another_schedule_is_found_with_its_step_and_tensor(here: Path) -> None:
    result = run("diff", "one", "slower")
    assert result.returncode == 1, result.stderr
    first, again, head, *causes = result.stdout.splitlines()
    assert first == "one and slower never agree, and differ at step 8."
    assert again.startswith("Done again from step 0, they part in step 2: "), "the first step has the same rate in both"
    assert head == "Of what the bits depend on, this differs:"
    assert [cause.split(":")[0].strip() for cause in causes] == ["recipe schedule.warmup"]


def test_another_seed_parts_before_the_first_step(here: Path) -> None:
    found = json.loads(run("diff", "one", "seed", "--json").stdout)
    assert (found["found"]["start"], found["found"]["step"]) == (0, 0)
    assert [cause["what"] for cause in found["causes"]] == ["recipe seed"]


def test_versions_strategies_and_mixed_workers_are_causes_and_places_are_none() -> None:
    recipe = RECIPES["demo"]()
    record = Record("one", recipe, Job(workers=1), {"torch": {"version": "2.12"}}, {}, False)
    assert causes(record, replace(record, job=Job(workers=7, engine="ray", strategy="server"))) == []
    elsewhere = replace(recipe, name="x", data=replace(recipe.data, path="/there"), log_every=3)
    assert causes(record, replace(record, recipe=elsewhere)) == []
    other = replace(record, environment={"torch": {"version": "2.13"}}, job=Job(workers=1, strategy="averaging"))
    found = [str(cause) for cause in causes(record, replace(other, is_mixed=True))]
    assert "environment torch.version: '2.12' and '2.13'" in found
    assert "strategy bits: 'synchronous' and 'averaging'" in found
    assert found[-1] == "workers with other arithmetic took part: False and True"


def falsify(name: str, step: int) -> None:
    """As if this run had computed something else from this step on."""
    path = Path("runs") / name / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if "digest" in row and row.get("step", 0) >= step:
            row["digest"] = "0" * 64
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_if_nothing_differs_the_run_that_computed_wrongly_is_named(here: Path) -> None:
    shutil.copytree("runs/two", "runs/wrong", dirs_exist_ok=True)
    falsify("wrong", 24)
    result = run("diff", "wrong", "one")
    assert result.returncode == 1, result.stderr
    first, again, verdict = result.stdout.splitlines()
    assert first == "wrong and one agree up to step 16, and differ at step 24."
    assert again.startswith("Done again from step 16 on this machine, both give ")
    assert again.endswith("what one has recorded, and the other has computed something else.")
    assert verdict.startswith("Nothing that the bits depend on differs: this is a bug in Lockstep, or the hardware")


def test_a_resume_with_another_length_is_a_cause_where_the_schedule_follows_it(here: Path) -> None:
    shutil.copytree("runs/one", "runs/longer", dirs_exist_ok=True)
    resumed = run("resume", "longer", "--steps", "26")
    assert "the result is not that of a run of 26 steps from the start" in resumed.stderr
    assert "from the start" not in run("resume", "longer").stderr
    assert run("train", "runs/longer", "--run", "at-once").returncode == 0
    result = run("diff", "longer", "at-once", "--recorded")
    assert result.returncode == 1, result.stderr
    assert result.stdout.splitlines()[-2:] == [
        "Of what the bits depend on, this differs:",
        "  the length in steps: '24, from step 24 on 26' and '26'",
    ]


def test_a_length_is_a_cause_only_where_it_counts_and_unknown_if_an_older_version_has_not_recorded_it() -> None:
    recipe = RECIPES["demo"]()
    whole = Record("whole", recipe, Job(workers=1), {}, {}, False, lengths=((0, 14),))
    resumed = replace(whole, lengths=((0, 12), (12, 14)))
    assert [cause.what for cause in causes(whole, resumed)] == ["the length in steps"]
    constant = replace(recipe, schedule=Schedule(name="constant"))
    assert causes(replace(whole, recipe=constant), replace(resumed, recipe=constant)) == []
    assert "the length in steps" in unrecorded(whole, replace(whole, lengths=((0, None), (12, None))))
    assert "the length in steps" not in unrecorded(whole, replace(whole, lengths=((0, None),)))


def test_only_what_was_recorded_and_data_that_have_gone(here: Path) -> None:
    recorded = run("diff", "one", "seed", "--recorded")
    assert recorded.returncode == 1
    assert "Done again" not in recorded.stdout
    shutil.copytree("runs/seed", "runs/gone", dirs_exist_ok=True)
    path = Path("runs/gone/config.json")
    config = json.loads(path.read_text())
    config["recipe"]["data"] |= {"source": "cifar10", "path": "/nowhere"}
    path.write_text(json.dumps(config))
    result = run("diff", "one", "gone")
    assert result.returncode == 1
    assert "were not done again: there is no /nowhere" in result.stdout
    assert "recipe seed: 0 and 1" in result.stdout


def test_runs_without_a_common_step_cannot_be_compared(here: Path) -> None:
    shutil.copytree("runs/one", "runs/empty", dirs_exist_ok=True)
    Path("runs/empty/metrics.jsonl").write_text("")
    result = run("diff", "one", "empty")
    assert result.returncode == 1
    assert "have no digest of the same step" in result.stdout


def test_what_differs_beyond_measure_is_null_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the shapes of a tensor differ."""
    one = Record("one", RECIPES["demo"](), Job(workers=1), {}, {8: "a"}, False)
    other = replace(one, name="other", digests={8: "b"})
    found = Difference(one, other, parting(one, other), Found(0, 0, ("weight",), math.inf, ("a", "b")), None)
    monkeypatch.setattr(differences, "diff", lambda *_, **__: found)
    assert cli.main(["diff", "one", "other", "--json"]) == 1
    shown = capsys.readouterr().out
    assert "Infinity" not in shown
    assert json.loads(shown)["found"]["largest"] is None
