"""Images that a model cannot take are one sentence, unless the model is the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep import owncode
from lockstep.config import Data, Model, Recipe
from lockstep.data import open_dataset
from lockstep.errors import UserError
from lockstep.models.fitting import told
from lockstep.recipes.demo import demo
from tests.alone import train

SMALL = (
    "airbench cannot take 4 images of 4 x 4 pixels (Given input size: (256x1x1). Calculated output size: (256x0x0). "
)
ONE = "resnet cannot take one image of 32 x 32 pixels (Expected more than 1 value per channel when training"


def first_leaf(model: Model, leaf_batch: int = 4, **data: object) -> Recipe:
    return replace(
        demo(),
        model=model,
        steps=1,
        leaves=1,
        global_batch=leaf_batch,
        data=Data(source="shapes", **data),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("recipe", "sentence", "advice"),
    [
        (first_leaf(Model(name="airbench"), sizes=((1.0, 4),)), SMALL, "): take larger images, or another model"),
        (
            first_leaf(Model(name="resnet", options={"depth": 18}), 1),
            ONE,
            "): take larger images, a larger batch, or fewer --leaves",
        ),
    ],
)
def test_a_built_in_model_says_what_it_cannot_take(recipe: Recipe, sentence: str, advice: str) -> None:
    with pytest.raises(UserError) as error:
        train(recipe)
    assert str(error.value).startswith(sentence)
    assert str(error.value).endswith(advice)


@pytest.mark.usefixtures("timm")
def test_a_model_of_timm_is_told_the_size_of_the_images() -> None:
    with pytest.raises(UserError) as error:
        train(first_leaf(Model(name="timm:vit_tiny_patch16_224")))
    assert str(error.value) == (
        "timm:vit_tiny_patch16_224 cannot take 4 images of 32 x 32 pixels (Input height (32) doesn't match model "
        "(224)): --set model.img_size=32 may help, or take another model"
    )


def test_what_a_model_of_the_users_own_raises_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from torch import nn\ndef net(): return nn.Linear(7, 10)\n")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        train(first_leaf(Model(name=f"{tmp_path}/own.py:net")))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("x"), RuntimeError("can't allocate memory"), KeyError("x")])
def test_a_machine_that_has_not_enough_is_not_the_models_fault(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, told(Model(name="small"), (4, 3, 32, 32)):
        raise error
    assert raised.value is error


def test_a_crop_from_beyond_the_image_is_refused_before_the_start() -> None:
    recipe = first_leaf(Model(name="small"), crop_padding=33)
    with pytest.raises(
        UserError, match=r"data.crop_padding is 33 pixels, and the shorter side of the images is 32: give"
    ):
        owncode.check_fit(recipe, open_dataset(recipe.data, 0))
    owncode.check_fit(replace(recipe, data=replace(recipe.data, crop_padding=32)), open_dataset(recipe.data, 0))
