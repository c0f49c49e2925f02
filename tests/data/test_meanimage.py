"""The mean image: its middle is subtracted on the device; what is no mean image is one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.config import Data
from lockstep.data import meanimage, open_dataset
from lockstep.errors import UserError
from lockstep.preprocess import Preprocess
from lockstep.request import Request, find_recipe, resolve

SHAPES = Data(source="shapes", standardize="mean-image")


def written(path: Path, array: object) -> Data:
    np.save(path, array)  # type: ignore[arg-type]
    return replace(SHAPES, mean_image=str(path))


def test_the_middle_of_the_mean_image_is_subtracted(tmp_path: Path) -> None:
    """F22."""
    mean = np.random.default_rng(0).uniform(0, 255, (40, 36, 3))
    data = written(tmp_path / "mean.npy", mean)
    preprocess = Preprocess(data, open_dataset(data, 0), 1, torch.device("cpu"))
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    middle = torch.from_numpy(mean[4:36, 2:34].astype(np.float32)).permute(2, 0, 1)
    assert (preprocess.normalize(images) == images.float() - middle).all()


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((32, 32)), "must have height x width x 3 finite numbers"),
        (np.zeros((3, 32, 32)), "must have height x width x 3 finite numbers"),
        (np.full((32, 32, 3), np.nan), "finite numbers"),
        (np.zeros((32, 32, 3), dtype=complex), "finite numbers"),
        (np.array([{"a": 1}]), "is not a mean image"),
        (np.zeros((31, 40, 3)), "has 40 x 31 pixels, less than the 32 x 32 of the images"),
    ],
)
def test_what_is_no_mean_image_is_refused(tmp_path: Path, array: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        open_dataset(written(tmp_path / "mean.npy", array), 0)


def test_a_missing_or_damaged_file_is_refused(tmp_path: Path) -> None:
    shape = (3, 32, 32)
    with pytest.raises(UserError, match=r"write one with `lockstep data mean`"):
        meanimage.load(SHAPES, shape)
    with pytest.raises(UserError, match="there is no mean image"):
        meanimage.load(replace(SHAPES, mean_image=str(tmp_path / "none.npy")), shape)
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="is not a mean image"):
        meanimage.load(replace(SHAPES, mean_image=str(tmp_path / "bad.npy")), shape)
    (tmp_path / "empty.npy").write_bytes(b"")
    with pytest.raises(UserError, match="is not a mean image"):
        meanimage.load(replace(SHAPES, mean_image=str(tmp_path / "empty.npy")), shape)


def test_its_path_is_stored_as_an_absolute_one(workspace: Path) -> None:
    settings = ["data.standardize=mean-image", "data.mean_image=mean.npy"]
    recipe = resolve(find_recipe("alexnet-imagenet"), Request(settings=settings))
    assert recipe.data.mean_image == f"{workspace}/mean.npy"
