"""Mixup and cutmix on tensors, the loss against both labels, and where in training they are."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from lockstep import mixing
from lockstep.data import open_dataset
from lockstep.data.mix import Mix
from lockstep.data.source import in_order
from tests.alone import set_up, tiny_recipe
from tests.augmentations import PLAIN, asking

IMAGES = torch.arange(4 * 3 * 8 * 8, dtype=torch.float32).reshape(4, 3, 8, 8)
IMAGES_LAST = IMAGES.contiguous(memory_format=torch.channels_last)
LOGITS = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0], [2.0, -2.0, 0.0], [0.1, 0.2, 0.3]])
LABELS = torch.tensor([1, 0, 2, 2])
BEFORE = [3, 0, 1, 2]
"""Whom each of four images is mixed with."""


def test_mixup_blends_each_image_with_the_one_before() -> None:
    mixed = mixing.mix_images(IMAGES_LAST, Mix(0.75))
    assert torch.equal(mixed, IMAGES * 0.75 + IMAGES[BEFORE] * 0.25)
    assert mixed.is_contiguous(memory_format=torch.channels_last)


def test_cutmix_takes_a_box_from_the_image_before() -> None:
    mixed = mixing.mix_images(IMAGES_LAST, Mix(0.9, (1, 4, 2, 8)))
    expected = IMAGES.clone()
    expected[:, :, 1:4, 2:8] = IMAGES[BEFORE][:, :, 1:4, 2:8]
    assert torch.equal(mixed, expected)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    assert IMAGES_LAST.equal(IMAGES)


def test_without_a_mix_nothing_changes() -> None:
    assert mixing.mix_images(IMAGES, None) is IMAGES
    assert torch.equal(mixing.loss(LOGITS, LABELS, None), F.cross_entropy(LOGITS, LABELS))


def test_the_loss_counts_both_labels_by_their_share() -> None:
    for smoothing in (0.0, 0.1):
        one_hot = F.one_hot(LABELS, 3).double()
        soft = one_hot * 0.75 + one_hot[BEFORE] * 0.25
        expected = F.cross_entropy(LOGITS.double(), soft, label_smoothing=smoothing)
        found = mixing.loss(LOGITS, LABELS, Mix(0.75), smoothing)
        assert abs(found.item() - expected.item()) < 1e-6


def test_hits_are_counted_against_the_image_s_own_label() -> None:
    """Also where nothing of the image itself is left."""
    replica, strategy, step = set_up(tiny_recipe(data=asking("mixup")))
    batch = replace(strategy.batch(step.leaf(0)), mix=Mix(0.0))
    vector = replica.gradient(batch, 0, 0)
    images, labels = replica.device.put(batch, channels_last=True)
    replica.rewind()
    logits = replica.model(mixing.mix_images(replica.preprocess.normalize(images), batch.mix))
    assert vector.counts[1].item() == (logits.argmax(1) == labels).sum().item()
    assert abs(vector.counts[0].item() - mixing.loss(logits, labels, batch.mix).item()) < 1e-6
    strategy.close()


def test_only_leaves_of_training_are_mixed() -> None:
    """F13: the draw is attached where a leaf is read; no source makes one, and evaluation has the source's alone."""
    for data, mixed in ((PLAIN, False), (asking("mixup"), True), (asking("cutmix"), True)):
        _, strategy, step = set_up(tiny_recipe(data=data))
        assert all((strategy.read(step.leaf(leaf)).mix is not None) == mixed for leaf in range(4))
        assert strategy.read(step.leaf(1)).mix == strategy.batch(step.leaf(1)).mix
        assert open_dataset(data, 0).test.fetch(in_order(0, 4)).mix is None
        strategy.close()
