"""The data of a run that goes on must be the same; they may lie elsewhere now."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as public
from lockstep import api, checkpoint, moving, progress
from lockstep.config import Script
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.request import Request
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor.plan import Plan
from tests.conftest import Command, digest_in
from tests.data import files
from tests.data.test_cifar import write
from tests.test_bad_input import refused
from tests.test_resume import TINY

SHORT = [*TINY, "--steps", "6"]


def write_other(directory: Path, train: int = 30) -> str:
    """As many samples as `write` makes, of other pixels."""
    directory.mkdir(parents=True)
    records = files.cifar10(train + 10, seed=1)
    records[:train].tofile(directory / "data_batch_1.bin")
    records[train:].tofile(directory / "test_batch.bin")
    return str(directory)


def test_a_run_goes_on_with_its_data_elsewhere_to_the_same_digest(lockstep: Command, workspace: Path) -> None:
    """F76: and with no others; what it was told it remembers."""
    write(workspace / "here")
    whole = digest_in(lockstep("train", *SHORT, "--data", "here", "--workers", "1", "--run", "whole"))
    cut = lockstep("train", *SHORT, "--data", "here", "--workers", "2", "--run", "cut", "--stop-at", "3")
    assert digest_in(cut) != whole
    (workspace / "there").mkdir()
    shutil.move("here", "there/below")
    gone = refused(lockstep("resume", "cut"))
    assert f"there is no {workspace}/here; if the data of cut lie elsewhere now, say where: " in gone
    assert gone.endswith("`lockstep resume cut --data PATH`")
    other = refused(lockstep("resume", "cut", "--data", write_other(workspace / "other")))
    assert other == f"lockstep: the training set in {workspace}/other is not that of cut: give the same with --data"
    assert digest_in(lockstep("resume", "cut", "--data", "there/below", "--workers", "1")) == whole
    assert RunDirectory(Path("runs/cut")).read_config()[0].data.path == f"{workspace}/there/below"
    assert digest_in(lockstep("resume", "cut", "--workers", "1")) == whole


def relabel(path: Path) -> None:
    """As many samples, each of another class."""
    records = np.fromfile(path, np.uint8).reshape(-1, 3073)
    records[:, 0] = (records[:, 0] + 1) % 10
    records.tofile(path)


def test_a_run_does_not_go_on_with_other_data(lockstep: Command, workspace: Path) -> None:
    """F76: one recipe, one digest: however it is continued, and nothing of the run has changed when they are back."""
    write(workspace / "here")
    whole = digest_in(lockstep("train", *SHORT, "--data", "here", "--workers", "1", "--run", "whole"))
    cut = [*SHORT, "--data", "here", "--workers", "1", "--run", "cut"]
    lockstep("train", *cut, "--stop-at", "2")
    shutil.copytree("here", "kept")
    relabel(workspace / "here/data_batch_1.bin")
    sentence = (
        f"lockstep: the training set in {workspace}/here is not that of cut: bring the same data back, or start a new "
        "run, with --init cut to go on from its weights"
    )
    assert refused(lockstep("resume", "cut")) == sentence
    assert refused(lockstep("train", *cut, "--resume")) == sentence
    shutil.rmtree("here")
    shutil.move("kept", "here")
    assert digest_in(lockstep("resume", "cut")) == whole


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained: a run has its plan, and goes on from step 0."""
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: plan)


def begun(recipe: str = "demo", run: str = "cut", **asked: Any) -> None:
    api.train(recipe, Request(workers=1, **asked), run=run)


def resumed(run: str = "cut", **asked: Any) -> Plan:
    return api.resume(run, Request(**asked))  # type: ignore[return-value]


@pytest.mark.usefixtures("planned")
def test_the_test_set_may_lie_elsewhere_too_and_must_be_the_same(workspace: Path) -> None:
    write(workspace / "here")
    write_other(workspace / "val")
    begun(data="here/data_batch_?.bin", eval_data="val")
    shutil.move("val", "away")
    with pytest.raises(UserError, match=r"there is no .*/val; .*: `lockstep resume cut --data PATH --eval-data PATH`"):
        resumed()
    with pytest.raises(UserError, match=r"^the test set in .*/here is not that of cut: give the same with --eval-data"):
        resumed(eval_data="here")
    shutil.move("here", "there")
    data = resumed(data="there", eval_data="away").recipe.data
    assert (data.path, data.eval_path) == (f"{workspace}/there", f"{workspace}/away")
    begun(data="there", run="beside")
    with pytest.raises(UserError, match=r"^the test set in .*/away is not that of beside: "):
        resumed("beside", eval_data="away")
    (workspace / "tests").mkdir()
    shutil.copy("there/test_batch.bin", "tests")
    assert resumed("beside", eval_data="tests").recipe.data.eval_path == f"{workspace}/tests"


@pytest.mark.usefixtures("planned")
def test_data_of_another_size_are_refused_with_both_sizes_also_where_nothing_else_is_known(workspace: Path) -> None:
    """Runs that are older than checksums of data have their sizes."""
    write(workspace / "here")
    begun(data="here")
    other = write_other(workspace / "other", train=31)
    same_size = write_other(workspace / "same-size")
    notes: list[str] = []

    class Noting(progress.Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    for _ in range(2):
        with pytest.raises(UserError, match="not that of cut, which had 30 samples where this one has 31: give the"):
            resumed(data=other)
        directory = RunDirectory(Path("runs/cut"))
        directory.write_json("environment.json", {"version": 1})
    api.resume("cut", Request(data=same_size), display=Noting())
    assert notes[0] == "cut has no checksums of its data, being older: only their sizes were compared"


def step_of(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A run goes on from this step."""
    newest = checkpoint.Info(Path(), step, "", "", None, -1, [])
    monkeypatch.setattr(api, "_newest", lambda *_: newest)


@pytest.mark.usefixtures("planned")
def test_a_run_that_is_only_evaluated_needs_its_test_set(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would be of another; nothing is computed from the training set, whose description stays."""
    write(workspace / "here")
    begun(data="here", steps=6)
    step_of(monkeypatch, 6)
    files.cifar10(20, seed=7).tofile("here/data_batch_1.bin")
    before = Path("runs/cut/dataset.json").read_text()
    assert resumed().first_step == 6
    assert Path("runs/cut/dataset.json").read_text() == before
    with pytest.raises(UserError, match=r"^the training set in .* which had 30 samples where this one has 40: bring"):
        resumed(steps=7)
    relabel(workspace / "here/test_batch.bin")
    with pytest.raises(
        UserError, match=r"^the test set in .*/here .*, or test it on these with `lockstep evaluate cut`"
    ):
        resumed()


@pytest.mark.usefixtures("planned")
def test_what_counts_is_what_the_state_was_computed_from(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions only recorded that data had changed: such a run goes on with the last that it was trained on."""
    write(workspace / "here")
    begun(data="here", steps=6)
    path = RunDirectory(Path("runs/cut"))
    environment: Any = path.read_json("environment.json")
    environment["inputs"].append(environment["inputs"][0] | {"step": 2, "data": {"train": "x", "test": "y"}})
    path.write_json("environment.json", environment)
    for step, is_same in ((2, True), (3, False)):
        path.write_json("environment.json", environment)
        step_of(monkeypatch, step)
        if is_same:
            assert resumed().first_step == step
        else:
            with pytest.raises(UserError, match="not that of cut"):
                resumed()


@pytest.mark.usefixtures("planned")
def test_an_older_run_is_compared_by_its_sizes_without_a_word(workspace: Path) -> None:
    write(workspace / "here")
    begun(data="here")
    RunDirectory(Path("runs/cut")).write_json("environment.json", {"version": 1})
    relabel(workspace / "here/data_batch_1.bin")
    notes: list[str] = []

    class Noting(progress.Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    api.resume("cut", display=Noting())
    assert notes == []
    RunDirectory(Path("runs/cut")).write_json("environment.json", {"version": 1})
    files.cifar10(20, seed=7).tofile("here/data_batch_1.bin")
    with pytest.raises(UserError, match=r"which had 30 samples where this one has 40: bring .* or start a new run$"):
        resumed()


@pytest.mark.usefixtures("planned")
def test_the_mean_image_must_be_the_same(workspace: Path) -> None:
    write(workspace / "here")
    np.save("mean.npy", np.zeros((32, 32, 3), np.float32))
    begun(data="here", settings=["data.standardize=mean-image", "data.mean_image=mean.npy"])
    assert resumed().first_step == 0
    np.save("mean.npy", np.ones((32, 32, 3), np.float32))
    with pytest.raises(UserError, match=r"^the mean image .*/mean\.npy is not that of cut: bring the same data back"):
        resumed()


OWN = """
import numpy as np
def told(path, eval_path=None):
    pair = np.load(path), np.arange(8) % 2
    return pair, pair
def alone():
    pair = np.zeros((8, 3, 32, 32), np.uint8), np.arange(8) % 2
    return pair, pair
"""


@pytest.mark.usefixtures("planned")
def test_data_of_ones_own_move_where_the_function_is_told_of_it(workspace: Path) -> None:
    (workspace / "own.py").write_text(OWN)
    np.save("here.npy", np.ones((8, 3, 32, 32), np.uint8))
    np.save("other.npy", np.full((8, 3, 32, 32), 2, np.uint8))
    begun(data="own.py:told", settings=["data.path=here.npy"])
    shutil.move("here.npy", "there.npy")
    with pytest.raises(UserError, match=r"No such file .*/here\.npy'; .*: `lockstep resume cut --data PATH`"):
        resumed()
    with pytest.raises(UserError, match="is not that of cut: give the same with --data"):
        resumed(data="other.npy")
    assert resumed(data="there.npy").recipe.data.path == f"{workspace}/there.npy"
    np.save("there.npy", np.full((8, 3, 32, 32), 2, np.uint8))
    with pytest.raises(UserError, match=r"^the training set in .*/there\.npy is not that of cut: bring the same data"):
        resumed()
    assert resumed(allow_mixed=True).first_step == 0, "what own code makes of them may depend on libraries"
    begun(data="own.py:alone", run="alone")
    with pytest.raises(UserError, match="has no parameter `path`, and finds its data by itself: leave out --data"):
        resumed("alone", data="there.npy")


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"data": "shapes"}, "--data says where the data of cut lie now: give a path or URL, not shapes"),
        ({"data": "own.py:told"}, "--data says where the data of cut lie now: give a path or URL, not own.py:told"),
        ({"label_path": "train.txt"}, "--labels is for the source imagenet or file.py:function, and not for cifar10"),
        ({"data": "nowhere"}, "/nowhere; if the data of cut lie elsewhere now, say where: `lockstep resume cut"),
        ({"data": "https://host/cifar"}, "is not on this host, and the files of this source must be"),
    ],
)
def test_what_says_nothing_of_a_place_is_refused(workspace: Path, asked: dict[str, Any], sentence: str) -> None:
    write(workspace / "here")
    begun(data="here")
    before = Path("runs/cut/config.json").read_text()
    with pytest.raises(UserError) as refusal:
        resumed(**asked)
    assert sentence in str(refusal.value)
    assert Path("runs/cut/config.json").read_text() == before


@pytest.mark.usefixtures("planned")
def test_embedded_data_lie_nowhere_and_held_out_samples_stay(workspace: Path) -> None:
    write(workspace / "here")
    begun()
    with pytest.raises(UserError, match="cut trains on shapes, which is a part of Lockstep: leave out --data"):
        resumed(data="here")
    script = replace(demo(), script=Script(path="own.py", sha256="", num_samples=8))
    with pytest.raises(UserError, match=r"^own\.py finds its data by itself: leave out --data and --eval-data"):
        moving.with_places(script, Request(data="here", eval_data="here"), "cut")
    begun(data="here", hold_out=5, run="held-out")
    with pytest.raises(UserError, match="and not on both"):
        resumed("held-out", eval_data="here")
    shutil.move("here", "there")
    assert resumed("held-out", data="there").recipe.data.hold_out == 5


@pytest.mark.usefixtures("planned")
def test_python_takes_a_path_and_names_its_own_arguments(workspace: Path) -> None:
    write(workspace / "here")
    begun(data="here")
    shutil.move("here", "there")
    with pytest.raises(UserError, match=r"is not that of cut: give the same with data$"):
        public.resume("cut", data=Path(write_other(workspace / "other")), progress=False)
    plan: Any = public.resume("cut", data=Path("there"), progress=False)
    assert plan.recipe.data.path == f"{workspace}/there"


@pytest.mark.usefixtures("planned")
def test_train_with_resume_keeps_the_place_that_is_stored(workspace: Path) -> None:
    """The stored configuration wins there, and what to do is said."""
    write(workspace / "here")
    write(workspace / "there")
    begun(data="here")
    shutil.rmtree("here")
    with pytest.raises(UserError, match=r"there is no .*/here; .*`lockstep resume cut --data PATH`"):
        api.train("demo", Request(workers=1, data="there"), run="cut", resume=True)
