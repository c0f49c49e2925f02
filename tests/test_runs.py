"""What the commands say about runs, in Python: `lockstep.runs`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lockstep
from lockstep import runs
from tests.alone import tiny_recipe
from tests.conftest import run as command


def halves() -> Any:
    """Other images than the run was trained on: as many of each class."""
    images = np.zeros((20, 3, 32, 32), np.uint8)
    return (images, np.arange(20) % 10), (images, np.arange(20) % 10)


def test_they_return_what_the_commands_say(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And print nothing. A run is given by its name, by its path, or as it was returned."""
    few: dict[str, Any] = {"log_every": 1, "evaluation.max_leaves": 2, "evaluation.leaf_batch": 10}
    made = lockstep.train(tiny_recipe(), workers=1, data="shapes", settings=few, run="one", progress=False)
    lockstep.train(tiny_recipe(), workers=1, data="shapes", settings=few, run="two", seed=1, progress=False)
    picture = workspace / "picture.png"
    Image.fromarray(np.full((32, 32, 3), 90, np.uint8)).save(picture)

    evaluated = runs.evaluate(made, checkpoint="last", workers=1)
    predicted = runs.predict(made.directory, [picture, "missing.png"], top=3)
    compared = runs.compare("one", made, "two", "one")
    parted = runs.diff("one", made.directory.parent / "two", recorded=True)
    found = runs.summaries()
    exported = runs.export("one", "torch", out=workspace / "model.pt")
    assert capfd.readouterr() == ("", "")

    shown = command("evaluate", "one", "--workers", "1", "--json").stdout
    assert {**evaluated, "time": None} == {**json.loads(shown), "time": None}
    shown = command("predict", "one", str(picture), "missing.png", "--top", "3", "--json").stdout
    assert predicted == [json.loads(line) for line in shown.splitlines()]
    assert [sorted(one) for one in predicted] == [["guesses", "image"], ["image", "problem"]]
    assert len(predicted[0]["guesses"]) == 3
    assert runs.predict("one", picture, top=3) == predicted[:1]
    rows = list(csv.DictReader(io.StringIO(command("compare", "one", "two", "--csv").stdout)))
    assert [{key: "" if value is None else str(value) for key, value in one.items()} for one in compared] == rows
    shown = command("diff", "one", "two", "--recorded", "--json").stdout
    assert json.loads(json.dumps(parted)) == json.loads(shown)
    assert {one["what"] for one in parted["causes"]} == {"recipe seed"}
    assert found == [json.loads(line) for line in command("runs", "--json").stdout.splitlines()]
    assert exported == workspace / "model.pt"
    assert exported.is_file()


def test_a_run_is_evaluated_on_data_of_a_function(workspace: Path) -> None:
    made = lockstep.train(tiny_recipe(), workers=1, data="shapes", run="run", steps=1, progress=False)
    assert runs.evaluate(made, data=halves, workers=1)["examples"] == 20
    with pytest.raises(lockstep.UserError, match="unknown option 'wokers': did you mean 'workers'"):
        runs.evaluate("run", wokers=1)
    with pytest.raises(lockstep.UserError, match=r"^data takes .* not tuple: .* give a function that returns it$"):
        runs.evaluate("run", data=halves())


def test_a_checkpoint_is_chosen_by_a_step_as_a_number(workspace: Path) -> None:
    made = lockstep.train(tiny_recipe(), workers=1, data="shapes", run="run", steps=1, progress=False)
    assert runs.evaluate(made, checkpoint=1, workers=1) | {"time": 0} == runs.evaluate(made, workers=1) | {"time": 0}
    picture = Image.new("RGB", (32, 32))
    assert runs.predict(made, [picture], checkpoint=1) == runs.predict(made, [picture], checkpoint="1")
    assert runs.export(made, "torch", checkpoint=1).is_file()
    steps = np.array(made.evaluations["step"])
    assert sorted(made.load_model(steps[-1]).state_dict()) == sorted(made.load_model().state_dict())


def test_a_run_that_cannot_be_read_is_a_warning(workspace: Path) -> None:
    directory = workspace / "runs/broken"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{")
    with pytest.warns(UserWarning, match="broken"):
        assert runs.summaries() == []


def test_mistakes_are_told_with_the_names_of_arguments(workspace: Path) -> None:
    made = lockstep.train(tiny_recipe(), workers=1, data="shapes", run="run", steps=1, progress=False)
    picture, there = Image.new("RGB", (32, 32)), workspace / "there.pt"
    there.touch()
    for mistake, sentence in (
        (lambda: runs.evaluate(made, workers=9), r"take workers=\d or fewer, or more leaves"),
        (lambda: runs.evaluate(made, checkpoint="beste"), "^checkpoint takes"),
        (lambda: runs.evaluate(made, checkpoint=-1), "^checkpoint takes .* the number of a step, not -1$"),
        (lambda: runs.predict(made, [picture], checkpoint=7), "has no checkpoint of step 7: there are 1$"),
        (lambda: runs.export(made, "torch", checkpoint=True), "^checkpoint takes .* not True$"),  # no step 1
        (lambda: made.load_model(1.0), "^checkpoint takes .* not 1.0$"),  # type: ignore[arg-type]
        (lambda: runs.predict(made, [picture], top=0), "^top takes a number"),
        (lambda: runs.export(made, "torch", out=there), "choose another name with out$"),
        (lambda: runs.compare(made, top1=90), "^top1 takes a fraction"),
        (lambda: runs.diff(made, None), "not as NoneType$"),  # type: ignore[arg-type]
    ):
        with pytest.raises(lockstep.UserError, match=sentence):
            mistake()
