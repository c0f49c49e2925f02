"""`lockstep runs`: from the files alone, and in spite of damaged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import injection
from lockstep.config import Job
from lockstep.recipes.demo import demo
from lockstep.report.runs import summarize_all
from lockstep.rundirectory import RunDirectory, existing
from tests.conftest import RECIPE, Command, start
from tests.test_resume import rows_of, wait_for_step
from tests.test_rundirectory import make_run


def test_runs_show_states_deaths_and_digests(lockstep: Command, workspace: Path) -> None:
    with injection.rules("kill worker=1 step=5 phase=exchange"):
        disturbed = lockstep("train", *RECIPE, "--workers", "2", "--run", "disturbed")
    assert "1 worker died on the way, 0 joined; 2 leaves recomputed" in disturbed.stdout
    process = start("train", *RECIPE, "--steps", "100000", "--workers", "1", "--run", "cut")
    wait_for_step(process, "cut", 9)
    running = json.loads(lockstep("runs", "--json").stdout.splitlines()[-1])
    assert (running["name"], running["state"]) == ("cut", "running")
    process.kill()
    process.communicate()
    Path("runs/broken").mkdir()
    Path("runs/broken/config.json").write_text("{")
    listed = lockstep("runs", "--json")
    assert listed.returncode == 0
    assert "runs/broken/config.json cannot be read" in listed.stderr
    first, second = map(json.loads, listed.stdout.splitlines())
    assert first["digest"] == disturbed.stdout.split()[-1]
    assert {key: first[key] for key in ("name", "state", "step", "deaths", "recomputed_leaves")} == {
        "name": "disturbed",
        "state": "finished",
        "step": 24,
        "deaths": 1,
        "recomputed_leaves": 2,
    }
    (recovery,) = rows_of("disturbed", "recovery")
    assert first["seconds_lost"] == recovery["seconds"]
    assert first["recipe"] == "demo"
    assert first["images_per_second"] > 0
    assert 0 <= first["top1"] <= first["best_top1"] <= 1
    assert (second["name"], second["state"]) == ("cut", "interrupted")
    shown = lockstep("runs").stdout
    assert "disturbed  demo    finished" in shown
    assert f"{first['top1']:.2%}" in shown
    assert f" {first['images_per_second']:.0f} " in shown
    assert first["digest"][:12] in shown


def test_no_runs_yet(lockstep: Command) -> None:
    assert "there is no run in runs/ yet" in lockstep("runs").stdout


def test_a_run_that_cannot_be_read_is_there_all_the_same(lockstep: Command, workspace: Path) -> None:
    (workspace / "runs/broken").mkdir(parents=True)
    (workspace / "runs/broken/config.json").write_text("{")
    shown = lockstep("runs")
    assert shown.stdout == ""
    assert "runs/broken/config.json cannot be read" in shown.stderr


def test_names_are_shown_as_they_are(lockstep: Command, workspace: Path) -> None:
    """And not as markup, which would leave out one of them, and stumble over the other."""
    for name in ("exp[lr=0.1]", "closed[", ":bug:"):
        make_run(f"runs/{name}")
    odd = RunDirectory(workspace / "runs/odd")
    odd.path.mkdir()
    odd.write_config(replace(demo(), name="a[/b]"), Job(workers=1))
    shown = lockstep("runs")
    assert shown.returncode == 0, shown.stderr
    for name in ("exp[lr=0.1]", "closed[", ":bug:", "a[/b]"):
        assert name in shown.stdout


@pytest.mark.usefixtures("workspace")
def test_the_last_line_is_the_run_that_is_meant_by_last() -> None:
    """That was started or resumed last, whichever was written to last."""
    for age, name in enumerate(("newest", "older")):
        directory = make_run(f"runs/{name}", age)
        directory.metrics.write_text(json.dumps({"kind": "start", "step": 0, "time": 1e9 + age}) + "\n")
    assert [one.name for one in summarize_all()[0]] == ["older", "newest"]
    assert existing("last").name == "newest"
