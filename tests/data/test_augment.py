"""Augmentation as a whole: keyed by the sample alone, on in training, off in evaluation. Each kind has its own file."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.augment import Augment
from lockstep.data.order import Samples
from lockstep.data.source import Images, in_order
from lockstep.evaluate import evaluate_leaf
from lockstep.preprocess import standardize
from tests.alone import set_up, tiny_recipe, train
from tests.augmentations import EACH, EVERYTHING, PER_SAMPLE, PLAIN, asking


def noise(count: int = 64, channels: int = 3) -> Images:
    return np.random.RandomState(0).randint(1, 256, size=(count, channels, 32, 32)).astype(np.uint8)


def changed(one: Images, other: Images) -> float:
    """The share of images that differ."""
    return float((one != other).any(axis=(1, 2, 3)).mean())


@pytest.mark.parametrize("data", [*map(asking, PER_SAMPLE), replace(PLAIN, **EVERYTHING)], ids=[*PER_SAMPLE, "all"])
def test_an_image_depends_on_seed_epoch_and_sample_and_not_on_its_batch(data: Data) -> None:
    """F8 F9 F12."""
    batch, augment = noise(), Augment(data, seed=0)
    whole = augment(batch, in_order(0, 64))
    assert whole.dtype == np.uint8
    assert whole.shape == batch.shape
    shuffled = np.random.RandomState(1).permutation(64)
    parts = np.empty_like(whole)
    for rows in (shuffled[:5], shuffled[5:32], shuffled[32:]):
        parts[rows] = augment(batch[rows], Samples(epoch=np.zeros_like(rows), index=rows))
    assert (whole == parts).all()
    later = augment(batch, Samples(epoch=np.ones(64, dtype=np.int64), index=np.arange(64)))
    assert changed(whole, later) > 0.3
    assert changed(whole, Augment(data, seed=1)(batch, in_order(0, 64))) > 0.3


def test_crops_and_flips_keep_their_bits() -> None:
    """The digests of recipes of the first version depend on them."""
    source = open_dataset(Data(source="synthetic", crop_padding=4, flip=True), seed=0).train
    images = source.fetch(Samples(epoch=np.arange(256) // 64, index=np.arange(256) % 64)).images
    known = "bb8080598f6bb949f599232b5188451b4f15edcfe43ed67d80e4c40ed0080e4c"
    assert hashlib.sha256(images.tobytes()).hexdigest() == known


@pytest.mark.parametrize("name", PER_SAMPLE)
@pytest.mark.parametrize("source", ["shapes", "synthetic"])
def test_the_training_source_is_augmented_and_the_test_source_is_not(name: str, source: str) -> None:
    """F13: the same records with and without."""
    augmented = open_dataset(replace(asking(name), source=source), seed=0)
    plain = open_dataset(replace(PLAIN, source=source), seed=0)
    samples = in_order(0, 200)
    assert changed(augmented.train.fetch(samples).images, plain.train.fetch(samples).images) > 0.3
    assert changed(augmented.test.fetch(samples).images, plain.test.fetch(samples).images) == 0


@pytest.mark.parametrize("name", EACH)
def test_augmentation_reaches_the_gradient_and_not_the_evaluation(name: str) -> None:
    """F13: from the same weights, the gradient of a leaf is another one, and the figures of evaluation are the same."""
    gradients, figures = [], []
    for data in (PLAIN, asking(name)):
        replica, strategy, step = set_up(tiny_recipe(data=data))
        gradients.append(strategy.contribution(step.leaf(0)).flat.clone())
        replica.rewind()
        test = open_dataset(data, 0).test
        figures.append(evaluate_leaf(replica, test, replica.recipe.evaluation, 0))
        strategy.close()
    assert not torch.equal(gradients[0], gradients[1])
    assert figures[0] == figures[1]


def test_every_augmentation_gives_a_digest_of_its_own() -> None:
    """F12: and once more the same one."""
    recipe = replace(tiny_recipe(), steps=2)
    found = {name: train(replace(recipe, data=asking(name))).digest() for name in EACH}
    found["none"] = train(replace(recipe, data=PLAIN)).digest()
    found["all"] = train(replace(recipe, data=replace(PLAIN, **EVERYTHING))).digest()
    # An alternating flip begins as a random one does, and these two steps are in the first epoch.
    assert found.pop("alternate") == found["flip"]
    assert len(set(found.values())) == len(found), found
    assert train(replace(recipe, data=replace(PLAIN, **EVERYTHING))).digest() == found["all"]


def test_standardisation_has_a_floor_on_the_deviation() -> None:
    """F10: mean 0 and deviation 1, and a constant image does not explode."""
    batch = torch.from_numpy(noise(4)).float()
    out = standardize(batch)
    assert torch.allclose(out.mean(dim=(1, 2, 3)), torch.zeros(4), atol=1e-5)
    assert torch.allclose(out.std(dim=(1, 2, 3), correction=0), torch.ones(4), atol=1e-5)
    assert (standardize(torch.full((1, 3, 32, 32), 9.0)) == 0).all()
    nearly = torch.zeros(1, 3, 32, 32)
    nearly[0, 0, 0, 0] = 1e-3
    expected = (1e-3 - 1e-3 / 3072) * 3072**0.5
    assert abs(standardize(nearly)[0, 0, 0, 0].item() - expected) < 1e-5
