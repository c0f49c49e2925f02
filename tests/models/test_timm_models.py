"""Models of timm."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lockstep import models
from lockstep.config import Model
from lockstep.errors import UserError
from tests.alone import tiny_recipe, train
from tests.conftest import Command, digest_in
from tests.models.networks import build, images
from tests.test_export import compare_with_shown, write_run


def test_without_timm_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"pip install 'lockstep-train\[timm\]'$"):
        models.check_model(Model(name="timm:resnet18"))


def test_a_timm_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As beside a torchvision that was built for another torch."""
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"nms does not exist.*install the torchvision that was built for your torch"):
        models.check_model(Model(name="timm:resnet18"))


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet81", {}, r"unknown timm model 'resnet81': did you mean 'resnet\w+'\?"),
        ("qqqqqqqq", {}, "timm.list_models"),
        ("resnet18", {"drop_rat": 0.1}, "timm does not take the options of model 'timm:resnet18': .*drop_rat"),
        ("resnet18", {"num_classes": 5}, "option 'num_classes' of model 'timm:resnet18' is set by Lockstep"),
        ("resnet18", {"pretrained": True}, "option 'pretrained' of model 'timm:resnet18' is set by Lockstep"),
    ],
)
def test_wrong_names_and_options_are_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        models.check_model(Model(name=f"timm:{name}", options=options))


def test_classes_channels_and_options_are_passed_on(timm: ModuleType) -> None:
    assert build("timm:resnet18")(images(2)).shape == (2, 10)
    model = Model(name="timm:resnet18", options={"drop_rate": 0.25})
    network = models.build(model, num_classes=100, image_shape=(1, 32, 32))
    assert network.get_parameter("conv1.weight").shape[1] == 1
    assert network.get_parameter("fc.weight").shape[0] == 100
    assert network.drop_rate == 0.25
    assert not timm.create_model("resnet18").drop_rate


@pytest.mark.usefixtures("timm")
def test_a_model_of_timm_trains_to_the_same_bits_twice() -> None:
    recipe = replace(tiny_recipe(model=Model(name="timm:resnet10t", options={"drop_rate": 0.2})), steps=1)
    assert train(recipe).digest() == train(recipe).digest()


@pytest.mark.timeout(300)  # every process imports timm
@pytest.mark.usefixtures("timm")
def test_workers_train_a_model_of_timm_to_one_digest(lockstep: Command) -> None:
    """With the real command: nobody has imported torchvision before, which may have been built for another torch."""
    evaluation = ["--set", "evaluation.max_leaves=1", "--set", "evaluation.leaf_batch=4"]
    small = ["--steps", "1", "--leaves", "2", "--batch-size", "4", *evaluation]
    options = ["demo", "--model", "timm:resnet10t", "--set", "model.drop_rate=0.2", *small]
    one, two = (digest_in(lockstep("train", *options, "--workers", str(n), timeout=150)) for n in (1, 2))
    assert one == two


def test_what_is_only_declared_says_that_it_is_not_there(torchvision: ModuleType) -> None:
    boxes, scores = torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1)
    if not hasattr(torchvision, "declared_operators"):  # it was built for this torch
        assert torchvision.ops.nms(boxes, scores, 0.5).tolist() == [0]
        return
    with pytest.raises(RuntimeError, match=r"Couldn't load custom C\+\+ ops"):
        torchvision.ops.nms(boxes, scores, 0.5)


DECLARE = """
import torch
try:
    import torchvision
except RuntimeError:  # as in lockstep/torchvisionimport.py
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


@pytest.mark.usefixtures("timm")
def test_a_checkpoint_is_used_by_timm_without_lockstep(workspace: Path) -> None:
    """As the documentation shows it."""
    replica = write_run("a", tiny_recipe(model=Model(name="timm:resnet10t")), 4)
    compare_with_shown(replica, 0, before=DECLARE)
