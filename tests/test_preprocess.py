"""What the model sees: sizes that grow with the run, and mirrored views in evaluation. Standardisation: tests/data."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lockstep.config import Data, Evaluation
from lockstep.data.source import in_order
from lockstep.errors import UserError
from lockstep.evaluate import evaluate_leaf, inference, seen, shifted
from lockstep.preprocess import side_at
from tests.alone import set_up, tiny_recipe, train

SIZES = ((0.5, 16), (0.8, 20), (1.0, 24))


@pytest.mark.parametrize(
    ("done", "side"), [(0.0, 16), (0.49, 16), (0.5, 20), (0.79, 20), (0.8, 24), (0.99, 24), (1.2, 24), (None, 24)]
)
def test_a_size_holds_until_its_fraction_of_the_run(done: float | None, side: int) -> None:
    assert side_at(SIZES, done) == side


def test_the_first_steps_of_sizes_are_known_so_that_all_are_compiled_before_the_loop() -> None:
    recipe = tiny_recipe()
    assert set_up(recipe)[0].preprocess.first_steps() == [0]
    replica = set_up(replace(recipe, steps=10, data=replace(recipe.data, sizes=((0.25, 16), (1.0, 24)))))[0]
    assert replica.preprocess.first_steps() == [0, 3]


def test_without_sizes_images_stay_as_they_are() -> None:
    assert side_at((), 0.3) is None


def test_the_model_sees_smaller_images_first_and_the_last_size_in_evaluation() -> None:
    recipe = tiny_recipe()
    recipe = replace(recipe, data=replace(recipe.data, sizes=((0.5, 16), (1.0, 24))))
    replica, strategy, step = set_up(recipe)
    seen_sides = []
    replica.model.register_forward_pre_hook(lambda module, inputs: seen_sides.append(inputs[0].shape[-1]))
    batch = strategy.read(step.leaf(0))
    last = recipe.steps
    assert last is not None
    for number in (0, last - 1):
        replica.pool.give(replica.gradient(batch, 1, number))
    images, _ = replica.device.put(batch, channels_last=True)
    with inference(replica):
        seen(replica, images, odd=False)
    assert seen_sides == [16, 24, 24]


def test_sizes_change_the_digest() -> None:
    recipe = tiny_recipe()
    smaller = replace(recipe, data=replace(recipe.data, sizes=((1.0, 16),)))
    assert train(recipe).digest() != train(smaller).digest()


@pytest.mark.parametrize(
    "sizes",
    [((0.5, 16),), ((0.9, 16), (0.5, 20), (1.0, 24)), ((1.0, 0),), ((math.nan, 16), (1.0, 20)), ((1.0, 10**8),)],
)
def test_sizes_that_make_no_sense_are_refused(sizes: tuple[tuple[float, int], ...]) -> None:
    from lockstep.check import check_data

    with pytest.raises(UserError, match=r"data\.sizes takes pairs"):
        check_data(Data(sizes=sizes), leaf_batch=8)


def test_mirrored_views_are_the_mean_of_both_sides() -> None:
    recipe = replace(tiny_recipe(), evaluation=Evaluation(leaf_batch=8, views="mirror"))
    replica, strategy, step = set_up(recipe)
    images, _ = replica.device.put(strategy.read(step.leaf(0)), channels_last=True)
    with inference(replica):
        mean = (replica.logits(images, None) + replica.logits(images.flip(-1), None)) / 2
        assert torch.equal(seen(replica, images, odd=False), mean)
        assert torch.allclose(seen(replica, images.flip(-1), odd=False), mean)
        assert not torch.allclose(replica.logits(images, None), mean, atol=1e-3)


def test_shifted_views_have_the_weight_of_those_that_are_not() -> None:
    recipe = replace(tiny_recipe(), evaluation=Evaluation(leaf_batch=8, views="shifted"))
    replica, strategy, step = set_up(recipe)
    images, _ = replica.device.put(strategy.read(step.leaf(0)), channels_last=True)
    with inference(replica):
        views = [shifted(images, pixels) for pixels in (0, 1, -1)]
        centre, down, up = (replica.logits(v, None) + replica.logits(v.flip(-1), None) for v in views)
        assert torch.allclose(seen(replica, images, odd=False), centre / 4 + down / 8 + up / 8, atol=1e-5)
        assert not torch.allclose(seen(replica, images, odd=False), centre / 2, atol=1e-3)


def test_a_shifted_image_is_mirrored_at_its_edge() -> None:
    image = torch.arange(12, dtype=torch.uint8).view(1, 1, 3, 4)
    assert shifted(image, 1).tolist() == [[[[5, 4, 5, 6], [1, 0, 1, 2], [5, 4, 5, 6]]]]
    assert shifted(image, -1).tolist() == [[[[5, 6, 7, 6], [9, 10, 11, 10], [5, 6, 7, 6]]]]
    assert torch.equal(shifted(image, 0), image)


def test_evaluation_uses_the_views_of_the_recipe() -> None:
    from lockstep.data import open_dataset

    plain = tiny_recipe()
    recipes = [replace(plain, evaluation=replace(plain.evaluation, views=v)) for v in ("one", "mirror", "shifted")]
    test = open_dataset(plain.data, plain.seed).test
    assert len(test.fetch(in_order(0, 4)).labels) == 4
    losses = [evaluate_leaf(train(recipe), test, recipe.evaluation, 0).loss for recipe in recipes]
    assert len(set(losses)) == 3
