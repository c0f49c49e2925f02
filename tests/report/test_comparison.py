"""`lockstep compare`: tables from the files of real runs."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import injection, metrics
from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.report.comparison import Run, columns, compare, load, reached_by_all, spread, table, time_to
from lockstep.report.page import page
from lockstep.rundirectory import RunDirectory, existing
from tests.conftest import RECIPE, run

ONE_SESSION: list[metrics.Row] = [{"kind": "start", "step": 0}, {"kind": "generation", "step": 0, "workers": 2}]


def written(name: str, rows: list[metrics.Row] = ONE_SESSION, best: float = 0.5, seed: int = 0) -> Run:
    """A run with these rows, which nobody has trained."""
    directory = RunDirectory(Path("runs") / name)
    directory.path.mkdir(parents=True)
    directory.write_config(replace(demo(), seed=seed), Job(workers=1))
    found = [*rows, {"kind": "eval", "step": 20, "top1": best, "best_top1": best}]
    directory.metrics.write_text("".join(json.dumps({**row, "time": float(at)}) + "\n" for at, row in enumerate(found)))
    return load(directory)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("is_reproducible", "shown"), [(True, "0" * 12), (False, "0" * 12 + " (varies)")])
def test_a_digest_that_varies_is_marked(is_reproducible: bool, shown: str) -> None:
    one = written("one")
    one = replace(one, summary=replace(one.summary, digest="0" * 64, is_reproducible=is_reproducible))
    rows, target = compare([one], None)
    assert columns(target, ["top1"])[-1].of_row(rows[0]) == shown


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One worker, two workers of which one is killed, another seed, and a strategy of its own."""
    root = tmp_path_factory.mktemp("compared")
    assert run("train", *RECIPE, "--workers", "1", "--run", "one", cwd=root).returncode == 0
    with injection.rules("kill worker=1 step=5 phase=exchange"):
        assert run("train", *RECIPE, "--workers", "2", "--run", "two", cwd=root).returncode == 0
    assert run("train", *RECIPE, "--workers", "2", "--run", "seed", "--seed", "1", cwd=root).returncode == 0
    servers = ["--strategy", "server", "--servers", "2"]
    assert run("train", *RECIPE, "--workers", "2", "--run", "served", *servers, cwd=root).returncode == 0
    return root


@pytest.fixture
def here(trained: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(trained)
    yield trained
    os.chdir(before)


def test_runs_are_shown_next_to_each_other(here: Path) -> None:
    result = run("compare", "one", "two", "seed", "served")
    assert result.returncode == 0, result.stderr
    head, one, two, served = result.stdout.splitlines()
    assert head.split()[:4] == ["run", "strategy", "engine", "N"]
    assert one.startswith("one ")
    assert two.startswith("two, seed "), "runs that differ only in the seed are one row"
    assert two.count("±") == 5, "steps/s, images/s, best top1, the time to it and MB/step"
    assert "server --servers 2" in served
    assert (one.split()[3], two.split()[4], "1-2" in served) == ("1", "1-2", False), "one of `two` was killed"
    digests = [re.findall(r"[0-9a-f]{12}", line) for line in (one, two, served)]
    assert digests[0] == digests[2] == digests[1][:1]
    assert digests[1][1] != digests[1][0]
    assert re.search(r" 1\.00 +100% ", one), "one worker is what others are compared with"


def test_runs_with_the_same_seed_have_rows_of_their_own(here: Path) -> None:
    """As a run and its repetition with a kill: what the death has cost is not lost in a mean."""
    shutil.copytree("runs/two", "runs/again", dirs_exist_ok=True)
    _, two, again = run("compare", "two", "seed", "again").stdout.splitlines()
    assert two.startswith("two, seed ")
    assert again.startswith("again ")
    assert "±" not in again


def test_the_figures_of_every_run_as_csv(here: Path) -> None:
    result = run("compare", "one", "two", "served", "--csv", "--top1", "0.01")
    one, two, served = csv.DictReader(io.StringIO(result.stdout))
    assert (one["run"], one["workers"], one["deaths"], one["speed_up"]) == ("one", "1", "0", "1.0")
    assert (two["deaths"], two["digest"]) == ("1", one["digest"])
    assert (two["workers"], served["mean_workers"]) == ("2", "2.0")
    assert float(served["efficiency"]) == pytest.approx(float(served["speed_up"]) / 2)
    there = (5 * 2 + 19 * 1) / 24  # the second one was killed in step 5, before its replacement was ready
    assert float(two["mean_workers"]) == pytest.approx(there)
    rows = [row["images_per_second"] for row in metrics.read(Path("runs/two/metrics.jsonl")) if row["kind"] == "train"]
    each = statistics.median(speed / (2 if step <= 5 else 1) for step, speed in enumerate(rows, 1))
    assert float(two["efficiency"]) == pytest.approx(each / float(one["images_per_second"]))
    assert float(two["speed_up"]) == pytest.approx(float(two["images_per_second"]) / float(one["images_per_second"]))
    assert float(one["bytes_per_step"]) == 0
    assert float(served["bytes_per_step"]) > float(two["bytes_per_step"]) > 0
    assert float(one["seconds_to_target"]) > 0
    assert one["best_top1"] == two["best_top1"] == served["best_top1"]


def test_every_line_of_csv_has_the_speed_up_of_its_own_run(here: Path) -> None:
    """Also where runs share a row of the table."""
    one, *grouped = csv.DictReader(io.StringIO(run("compare", "one", "two", "seed", "--csv").stdout))
    assert [line["run"] for line in grouped] == ["two", "seed"]
    for line in grouped:
        own = float(line["images_per_second"]) / float(one["images_per_second"])
        assert float(line["speed_up"]) == pytest.approx(own)
    assert grouped[0]["speed_up"] != grouped[1]["speed_up"]
    assert float(grouped[1]["efficiency"]) == pytest.approx(float(grouped[1]["speed_up"]) / 2)


def test_the_page_has_the_same_table(here: Path) -> None:
    """Cell by cell what the terminal shows."""
    runs = [load(existing(name)) for name in ("one", "two", "seed", "served")]
    rows, target = compare(runs)
    text = page(rows, target, "")
    lines = re.findall(r"<tr>(.*?)</tr>", text)
    found = [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)] for line in lines]
    shown = table(rows, target)
    columns = [[str(cell) for cell in column.cells] for column in shown.columns]
    assert found == [[str(column.header) for column in shown.columns], *map(list, zip(*columns, strict=True))]
    for title in ("steps/s", "images/s", "speed-up", "efficiency", "best top1", "MB/step"):
        assert all(line[found[0].index(title)] for line in found[1:]), title
    assert len(found) == 4


def test_a_run_that_is_not_there_and_an_accuracy_that_is_none(here: Path) -> None:
    result = run("compare", "one", "tow")
    assert (result.returncode, result.stdout) == (2, "")
    assert "tow" in result.stderr
    with pytest.raises(UserError, match=r"--top1 takes a fraction of 1 such as 0\.9, not 90"):
        compare([], 90)


def test_a_run_that_has_only_begun_has_empty_cells(here: Path, tmp_path: Path) -> None:
    shutil.copytree("runs/one", tmp_path / "begun")
    (tmp_path / "begun" / "metrics.jsonl").write_text('{"kind": "start", "version": 1, "step": 0, "time": 1.0}\n')
    result = run("compare", str(tmp_path / "begun"), "one")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr


def test_the_picture_is_one(here: Path, tmp_path: Path) -> None:
    from PIL import Image

    assert run("compare", "one", "two", "--png", str(tmp_path / "x.png")).returncode == 0
    with Image.open(tmp_path / "x.png") as image:
        assert image.width > 1000
        colours = image.convert("RGB").getcolors(1 << 24)
    assert colours is not None
    assert {(9, 105, 218), (225, 111, 36)} <= {colour for _, colour in colours}, "a curve of each run"
    refused = run("compare", "one", "--png", str(tmp_path / "nowhere" / "x.png"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_the_columns_are_those_that_were_promised() -> None:
    titles = [column.title for column in columns(0.9, ["top1"])]
    assert titles[:4] == ["run", "strategy", "engine", "N"]
    assert titles[4:9] == ["steps/s", "images/s", "speed-up", "efficiency", "best top1"]
    assert titles[9:] == ["s to 90%", "MB/step", "deaths", "digest"]
    assert "s to" not in " ".join(column.title for column in columns(None, ["top1"]))


@pytest.mark.parametrize(("target", "head"), [(0.9, "s to 90%"), (0.995, "s to 99.5%"), (0.29, "s to 29%")])
def test_the_time_to_an_accuracy_names_that_very_accuracy(target: float, head: str) -> None:
    assert time_to(target) == head


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("best", "whole"), [(0.29, 0.29), (0.58, 0.58), (0.999, 0.99), (1.0, 1.0), (0.004, None)])
def test_the_accuracy_that_all_have_reached_is_rounded_down_and_no_further(best: float, whole: float | None) -> None:
    """0.29 * 100 and 0.58 * 100 are a little less than they should be."""
    assert reached_by_all([written("run", best=best)]) == whole


@pytest.mark.usefixtures("workspace")
def test_a_run_that_was_continued_with_one_worker_is_not_one_of_one_worker() -> None:
    continued = [*ONE_SESSION, {"kind": "start", "step": 20}, {"kind": "generation", "step": 20, "workers": 1}]
    alone = [ONE_SESSION[0], {**ONE_SESSION[1], "workers": 1}]
    runs = [written("continued", continued), written("alone", alone, seed=1)]
    assert [row.names for row in compare(runs)[0]] == ["continued", "alone"]


def test_mean_and_spread() -> None:
    assert spread([0.5, 0.7], "{:.0%}") == "60% ± 14%"
    assert spread([0.5], "{:.0%}") == "50%"
    assert spread([], "{:.0%}") == ""
