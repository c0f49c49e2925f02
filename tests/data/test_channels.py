"""Mean and deviation of the channels: exact, and the same however they are added up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.config import Data
from lockstep.data import channels, open_dataset
from lockstep.device import Device
from lockstep.replica import Replica
from tests.alone import tiny_recipe, train
from tests.data import files
from tests.data.test_cifar import opened, write


def test_they_are_exact(tmp_path: Path) -> None:
    """F11: against fractions; the test set does not enter."""
    records = write(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073))
    found = opened(tmp_path, crop_padding=4, flip=True).channels
    for channel in range(3):
        values = [int(value) for value in records[:, 1 + channel * 1024 : 1 + (channel + 1) * 1024].ravel()]
        mean = Fraction(sum(values), len(values))
        assert found.mean[channel] == float(mean)
        variance = Fraction(sum(value * value for value in values), len(values)) - mean * mean
        assert found.deviation[channel] == float(variance) ** 0.5


def test_pieces_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F11."""
    write(tmp_path)
    dataset = opened(tmp_path)
    whole = channels.measure(dataset.train)
    for size in (1, 7 * 3072, 1 << 30):
        monkeypatch.setattr(channels, "PIECE_BYTES", size)
        assert channels.measure(dataset.train) == whole


def test_the_brightest_images_do_not_overflow(tmp_path: Path) -> None:
    records = files.cifar10(20)
    records[:, 1:] = 255
    records.tofile(tmp_path / "data_batch_1.bin")
    records.tofile(tmp_path / "test_batch.bin")
    found = opened(tmp_path).channels
    assert found.mean == (255.0, 255.0, 255.0)
    assert found.deviation == (1.0, 1.0, 1.0)  # a constant channel is only moved
    assert channels.LARGEST_PLANE >= 224 * 224


def test_training_and_test_images_are_normalised_by_the_same_numbers() -> None:
    """F11: on the device, in float32; numbers in the recipe go before measured ones."""
    recipe = tiny_recipe(data=Data(source="shapes", standardize="channel"))
    dataset = open_dataset(recipe.data, 0)
    images = torch.from_numpy(np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3, 32, 32))

    def normalized(data: Data) -> torch.Tensor:
        return Replica(replace(recipe, data=data), dataset, 1, Device("cpu", 1)).preprocess.normalize(images)

    mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (dataset.channels.mean, dataset.channels.deviation))
    assert torch.equal(normalized(recipe.data), (images.float() - mean) / deviation)
    given = replace(recipe.data, mean=(1.0, 2.0, 3.0), deviation=(2.0, 2.0, 4.0))
    assert normalized(given)[0, 2, 0, 0] == (images[0, 2, 0, 0].item() - 3) / 4


def test_another_normalisation_gives_other_bits() -> None:
    """F11: the control; and measured numbers give the bits of the same numbers in the recipe."""
    image, channel = (tiny_recipe(data=Data(source="shapes", standardize=how)) for how in ("image", "channel"))
    found = open_dataset(channel.data, 0).channels
    given = replace(channel, data=replace(channel.data, mean=found.mean, deviation=found.deviation))
    assert train(image).digest() != train(channel).digest() == train(given).digest()
