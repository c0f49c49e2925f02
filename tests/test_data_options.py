"""What a user can say about data: the digest follows the samples, and not how they are packed."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lockstep import api, checkpoint, progress, selection
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import Dataset, in_order
from lockstep.device import Device
from lockstep.errors import UserError
from lockstep.evaluate import evaluate_leaf
from lockstep.recipes.demo import demo
from lockstep.replica import Replica
from lockstep.request import Request, find_recipe, resolve
from lockstep.rundirectory import RunDirectory
from lockstep.settings import with_settings
from lockstep.supervisor.plan import Plan
from tests.conftest import Command, digest_in
from tests.data import files, pictures
from tests.data.test_cifar import write
from tests.test_bad_input import refused
from tests.test_resume import TINY

SHORT = [*TINY, "--steps", "3"]


def test_one_digest_for_every_version_and_number_of_workers(lockstep: Command, workspace: Path) -> None:
    """F2 F3 F4 F5: CIFAR-100 from pickles in an archive, and from binary files by a glob; another label differs."""
    records = files.cifar100(60)
    packed = files.write_tar(workspace / "a.tar.gz", *files.version("cifar100", "python", records[:50], records[50:]))
    folder = files.write_folder(workspace, *files.version("cifar100", "binary", records[:50], records[50:]))
    cifar100 = ["train", *SHORT, "--set", "data.source=cifar100"]
    one = digest_in(lockstep(*cifar100, "--data", packed.name, "--workers", "1", "--run", "one"))
    two = digest_in(lockstep(*cifar100, "--data", f"{folder.name}/tr*.bin", "--workers", "2", "--run", "two"))
    assert one == two
    coarse = lockstep(*cifar100, "--data", packed.name, "--set", "data.labels=coarse", "--workers", "1")
    assert digest_in(coarse) != one
    trained_on = lockstep("evaluate", "two", "--eval-data", f"{folder.name}/train.bin", "--workers", "1")
    assert "on 50 test images" in trained_on.stdout


def test_held_out_samples_and_channels(lockstep: Command, workspace: Path) -> None:
    """F11: the digest does not depend on the workers, and the mean becomes a part of the run."""
    channel = ["train", *SHORT, "--hold-out", "500", "--set", "data.standardize=channel"]
    one = lockstep(*channel, "--workers", "1", "--run", "one")
    two = lockstep(*channel, "--workers", "2", "--run", "two")
    assert digest_in(one) == digest_in(two)
    assert "on 250 held-out images" in one.stdout
    directory = RunDirectory(workspace / "runs/one")
    recipe, _ = directory.read_config()
    stored = directory.read_json("dataset.json")
    assert stored is not None
    assert tuple(stored["mean"]) == open_dataset(recipe.data, 0).channels.mean
    tested = lockstep("evaluate", "one", "--hold-out", "0")
    assert "on 250 test images" in tested.stdout
    more = refused(lockstep("evaluate", "one", "--hold-out", "501"))
    assert more == "lockstep: one held out 500 samples, and was trained on all others: give --hold-out 500 or less"


@pytest.mark.parametrize(
    ("kept", "asked", "sentence"),
    [
        (
            {"data": "here"},
            {"hold_out": 5},
            "trained held out no samples, and was trained on those .*: leave out --hold-",
        ),
        ({"data": "here"}, {"hold_out": 5, "data": "moved"}, "trained held out no samples"),
        ({"data": "here"}, {"hold_out": 5, "data": "other"}, None),
        ({"data": "here", "hold_out": 4}, {"hold_out": 5}, "held out 4 samples, .*: give --hold-out 4 or less$"),
        ({"data": "here", "hold_out": 4}, {"hold_out": 4}, None),
        ({"data": "here", "hold_out": 4}, {"hold_out": 3}, None),
        ({"data": "own.py:folder", "hold_out": 4}, {"hold_out": 3}, "held out 4 samples, .*: give --hold-out 4$"),
    ],
)
def test_only_what_a_run_held_out_is_called_so(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, kept: dict[str, Any], asked: dict[str, Any], sentence: str | None
) -> None:
    """Wherever its data lie; of shards a smaller number are other samples."""

    class Started(Exception):  # noqa: N818
        pass

    def supervise(plan: Plan, *_: object) -> Plan:
        if plan.evaluate_only:
            raise Started
        return plan

    monkeypatch.setattr(api, "_supervise", supervise)
    info = checkpoint.Info(Path(), 1, "", "", None, -1, [])
    monkeypatch.setattr(selection, "pinned", lambda *_: contextlib.nullcontext(info))
    write(workspace / "here")
    write(workspace / "moved")
    write(workspace / "other", train=33)
    pictures.write_folders(workspace / "pictures", 2, 4)
    Path("own.py").write_text(f"def folder():\n    return '{workspace}/pictures', None\n")
    api.train("demo", Request(workers=1, **kept), run="trained")
    with pytest.raises(UserError if sentence else Started, match=sentence):
        api.evaluate_run("trained", Request(workers=1, **asked))


@pytest.mark.usefixtures("workspace")
def test_the_test_set_is_normalised_with_mean_and_deviation_of_what_was_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F11: without the samples that were held out, as they are counted by hand; those of other data are others."""
    settings = ["data.standardize=channel", "evaluation.leaf_batch=50", "evaluation.max_leaves=1"]
    request = Request(workers=1, steps=1, batch_size=16, hold_out=9000, settings=settings)
    api.train("demo", request, run="one")
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: SimpleNamespace(evaluation=None, plan=plan))
    plan: Plan = api.evaluate_run("one", Request(workers=1, hold_out=0)).plan  # type: ignore[attr-defined]
    trained_on = open_dataset(replace(plan.recipe.data, hold_out=9000), plan.recipe.seed)
    source = trained_on.plain or trained_on.train
    counted = source.fetch(in_order(0, 1000)).images.astype(np.float64)
    mean, deviation = counted.mean((0, 2, 3), keepdims=True), counted.std((0, 2, 3), keepdims=True)
    assert not np.allclose(plan.dataset.channels.mean, mean.ravel(), rtol=1e-4)
    replica = Replica(plan.recipe, plan.dataset, plan.num_steps, Device("cpu", 1, "fp32"))
    given: list[torch.Tensor] = []
    replica.model.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    evaluate_leaf(replica, plan.dataset.test, plan.recipe.evaluation, 0)
    expected = (plan.dataset.test.fetch(in_order(0, 50)).images - mean) / deviation
    np.testing.assert_allclose(given[0].numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_run_as_a_recipe_measures_other_data_anew(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not so the same data, which give the same numbers, and not numbers that were given."""
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: plan)

    def data_of(recipe: str, run: str, **asked: object) -> Data:
        return api.train(recipe, Request(workers=1, **asked), run=run).recipe.data  # type: ignore[attr-defined, arg-type, no-any-return]

    first = data_of("demo", "first", settings=["data.standardize=channel"])
    assert first.mean
    assert data_of("runs/first", "same") == first
    other = data_of("runs/first", "other", data="synthetic")
    assert other.mean not in ((), first.mean)
    settings = ["data.standardize=channel", "data.mean=[1,2,3]", "data.deviation=[4,5,6]"]
    assert data_of("demo", "given", settings=settings).mean == (1.0, 2.0, 3.0)


def test_a_test_set_that_trains_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: before anything starts, also on other hosts; a run that an older version began goes on, with a word."""
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: plan)
    write(workspace / "some")
    sentence = r"data_batch_1\.bin is in the training set and in the test set, .*: leave it out of one of them"
    asked = Request(workers=1, data="some", eval_data="some/data_batch_1.bin")
    with pytest.raises(UserError, match=sentence):
        api.train("demo", asked, run="a")
    with pytest.raises(UserError, match=sentence):
        api.check("demo", asked, run="a", resume=False, elsewhere="cpu")
    assert not Path("runs").exists()
    monkeypatch.setattr(
        api, "_new_plan", lambda recipe, job, run, request: api.plan_of(recipe, job, run, None, request)
    )
    api.train("demo", asked, run="a")
    notes: list[str] = []

    class Noting(progress.Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    api.resume("a", display=Noting())
    assert notes == [
        f"{workspace}/some/data_batch_1.bin is in the training set and in the test set, "
        + ("so the test is on what was trained")
    ]


def resolved(**asked: object) -> dict[str, object]:
    return json.loads(json.dumps(vars(resolve(demo(), Request(**asked)).data)))  # type: ignore[arg-type, no-any-return]


def test_paths_are_stored_as_absolute_ones(workspace: Path) -> None:
    """A run is resumed from any directory."""
    write(workspace / "some")
    data = resolved(data="some/data_batch_?.bin,some/test_batch.bin", eval_data="some")
    assert data["path"] == f"{workspace}/some/data_batch_?.bin,{workspace}/some/test_batch.bin"
    assert data["eval_path"] == f"{workspace}/some"
    assert data["source"] == "cifar10"
    assert resolved(settings=["data.source=cifar10", "data.path=some"])["path"] == f"{workspace}/some"


def test_contradictions_are_refused(workspace: Path) -> None:
    write(workspace / "some")
    with pytest.raises(UserError, match="and not on both"):
        resolved(data="some", eval_data="some", hold_out=5)
    with pytest.raises(UserError, match="there is no other: give the directory or the files of the test set"):
        resolved(eval_data="other")
    with pytest.raises(UserError, match="give both, or none"):
        resolved(settings=["data.mean=[1, 2, 3]"])
    with pytest.raises(UserError, match="must be a positive number"):
        resolved(settings=["data.mean=[1, 2, 3]", "data.deviation=[1, 0, 1]"])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"label_path": "train.txt"},
            r"^--labels is for the source imagenet or file\.py:function, and not for cifar10: ",
        ),
        ({"eval_label_path": "val.txt"}, "^--eval-labels is for the source"),
        ({"key_prefix": "n"}, "^--key-prefix is for the source"),
        ({"endpoint_url": "http://host"}, "^--endpoint-url is for the source"),
        ({"anonymous": True}, "^--anonymous is for the source"),
        ({"settings": ["data.background=true"]}, r"^data\.background is for the source imagenet"),
        ({"settings": ["data.side=32"]}, r"^data\.side is for the source imagenet"),
        ({"settings": ["data.labels=coarse"]}, r"^data\.labels is for the source cifar100, and not for cifar10: leave"),
        (
            {"settings": ["data.processes=2"]},
            r"^data\.processes is for the source file\.py:function, and not for cifar10",
        ),
        (
            {"settings": ["data.mean=[1, 2, 3]", "data.deviation=[1, 1, 1]"]},
            r"for data\.standardize=channel, and it is im",
        ),
        (
            {"settings": ["data.mean_image=x.npy"]},
            r"^data\.mean_image is for data\.standardize=mean-image, and it is im",
        ),
    ],
)
def test_what_means_nothing_to_these_data_is_refused(workspace: Path, asked: dict[str, object], sentence: str) -> None:
    """And not trained without."""
    write(workspace / "some")
    with pytest.raises(UserError, match=sentence):
        resolved(data="some", **asked)


def test_what_a_recipe_says_is_not_asked_for(workspace: Path) -> None:
    """It may be trained on other data than its own, and runs keep what they were begun with."""
    settings = ["data.background=true", "data.mean_image=mean.npy"]
    older = replace(demo(), data=replace(demo().data, label_path="train.txt", labels="coarse", processes=2))
    for recipe in (find_recipe("alexnet-imagenet"), with_settings(find_recipe("imagenet-resnet50"), settings), older):
        assert resolve(recipe, Request(data="shapes")).data.source == "shapes"
    assert resolve(find_recipe("alexnet-imagenet"), Request(data="shapes", key_prefix="")).data.key_prefix == ""
    own = workspace / "own.py"
    own.write_text("def folders():\n    return 'train', 'val'\n")
    asked = Request(data="own.py:folders", label_path="train.txt", settings=["data.side=32", "data.processes=2"])
    assert resolve(demo(), asked).data.side == 32


OWN = """
import numpy as np
def arrays():
    pair = np.zeros((8, 3, 32, 32), np.uint8), np.arange(8) % 2
    return pair, pair
def folders():
    return "pictures", "pictures"
"""


def test_labels_are_for_what_a_function_of_ones_own_returns_if_it_is_a_folder(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And refused with arrays, which say by themselves what they show; what the recipe says is not."""
    monkeypatch.setattr(api, "_supervise", lambda plan, *_: plan)
    (workspace / "own.py").write_text(OWN)
    (workspace / "labels.txt").write_text("0.png 1\n1.png 0\n")
    (workspace / "pictures").mkdir()
    for number in range(2):
        (workspace / "pictures" / f"{number}.png").write_bytes(pictures.of_kind("png", seed=number))

    def dataset(function: str, **asked: object) -> Dataset:
        run = api.train("alexnet-imagenet", Request(workers=1, data=f"own.py:{function}", hold_out=0, **asked))  # type: ignore[arg-type]
        return run.dataset  # type: ignore[attr-defined, no-any-return]

    labels = {"label_path": "labels.txt", "eval_label_path": "labels.txt"}
    assert dataset("folders", key_prefix="", **labels).num_classes == 2
    assert len(dataset("arrays").train) == 8
    for asked in ({"label_path": "labels.txt"}, {"key_prefix": "n"}, {"settings": ["data.background=true"]}):
        with pytest.raises(UserError, match=r"is for folders of images, and .*own\.py:arrays returned none"):
            dataset("arrays", **asked)


def imagenet(name: str = "alexnet-imagenet", **asked: object) -> Data:
    return resolve(find_recipe(name), Request(**asked)).data  # type: ignore[arg-type]


def test_shards_are_named_by_urls_braces_and_globs(workspace: Path) -> None:
    """Nothing is looked for before the index is made: there may be no listing."""
    assert imagenet(data="s3://bucket/train,http://host/{000..012}.tar").path == (
        "s3://bucket/train,http://host/{000..012}.tar"
    )
    assert imagenet(data="shards/n{01..13,20}.tar").path == f"{workspace}/shards/n{{01..13,20}}.tar"
    data = imagenet(data="shards/*.tar", label_path="train.txt", eval_data="s3://b/val", eval_label_path="s3://b/v.txt")
    assert (data.path, data.label_path) == (f"{workspace}/shards/*.tar", f"{workspace}/train.txt")
    assert (data.eval_path, data.eval_label_path) == ("s3://b/val", "s3://b/v.txt")


def test_a_test_set_replaces_the_samples_that_a_recipe_holds_out(workspace: Path) -> None:
    """F17: the recipe's own prefix and hold-out are defaults."""
    assert (imagenet(data="x").hold_out, imagenet(data="x").key_prefix) == (500, "n015")
    assert imagenet(data="x", eval_data="y").hold_out == 0
    assert imagenet(data="x", hold_out=7, key_prefix="n").hold_out == 7
    assert imagenet(data="x", key_prefix="n").key_prefix == "n"
    assert imagenet(data="synthetic-imagenet").hold_out == 0
    with pytest.raises(UserError, match="and not on both"):
        imagenet(data="x", eval_data="y", hold_out=7)
