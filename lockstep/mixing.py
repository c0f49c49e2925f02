"""Mixup and cutmix on the device, on standardised images, and the loss against both labels.

What is mixed how is drawn in `lockstep.data.mix`. Without a mix nothing happens here, to the bit.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from lockstep.data.mix import Mix


def mix_images(images: Tensor, mix: Mix | None) -> Tensor:
    """Each image with a part of the one before it in the leaf."""
    if mix is None:
        return images
    other = images.roll(1, 0)
    if mix.box is None:
        return images * mix.weight + other * (1.0 - mix.weight)
    top, bottom, left, right = mix.box
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = other[:, :, top:bottom, left:right]
    return mixed


def loss(logits: Tensor, labels: Tensor, mix: Mix | None, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy; with a mix, that of both labels, each by the share of its image."""
    own = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    if mix is None:
        return own
    other = F.cross_entropy(logits, labels.roll(1), label_smoothing=label_smoothing)
    return own * mix.weight + other * (1.0 - mix.weight)
