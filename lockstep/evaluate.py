"""Exact evaluation: fixed leaves of the test set, every example counted once, in integers.

A worker computes the leaves that its rank says; the supervisor adds what all of them send, by leaf index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep.config import Evaluation

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.source import Source
    from lockstep.replica import Replica

Counts = tuple[tuple[int, int, int], ...]
"""(class, first guess, how often), ascending, without zeros."""


@dataclass(frozen=True)
class LeafResult:
    """What one leaf of the test set gave."""

    count: int
    top1: int
    top5: int
    loss: float
    """The sum over its examples, in float64."""
    confusion: Counts = ()
    """How often each class was taken for each other, where that was asked for."""


def num_leaves(size: int, config: Evaluation) -> int:
    leaves = -(-size // config.leaf_batch)
    return min(leaves, config.max_leaves) if config.max_leaves else leaves


def combine(results: dict[int, LeafResult]) -> dict[str, Any]:
    """Figures over the whole test set. Losses are added in the order of leaves, so the sum has one value."""
    ordered = [results[leaf] for leaf in sorted(results)]
    count = sum(result.count for result in ordered)
    confusion = add_counts(result.confusion for result in ordered)
    return {
        "examples": count,
        "top1": sum(result.top1 for result in ordered) / count,
        "top5": sum(result.top5 for result in ordered) / count,
        "loss": sum((result.loss for result in ordered), 0.0) / count,
        **({"confusion": confusion} if confusion else {}),
    }


def add_counts(parts: Iterable[Counts]) -> Counts:
    """The sum of several tables."""
    total: Counter[tuple[int, int]] = Counter()
    for part in parts:
        for label, guess, count in part:
            total[label, guess] += count
    return tuple((label, guess, count) for (label, guess), count in sorted(total.items()))


def evaluate_leaf(
    replica: Replica, source: Source, config: Evaluation, leaf: int, with_confusion: bool = False
) -> LeafResult:
    """Evaluate examples leaf * leaf_batch .. with the running statistics of BatchNorm and without augmentation."""
    import torch.nn.functional as F

    from lockstep.data.source import in_order
    from lockstep.replica import first_guesses, hits

    first = leaf * config.leaf_batch
    batch = source.fetch(in_order(first, min(first + config.leaf_batch, len(source))))
    with inference(replica):
        images, labels = replica.device.put(batch, replica.recipe.channels_last)
        logits = seen(replica, images, odd=len(batch.labels) != config.leaf_batch)
        loss = F.cross_entropy(logits, labels, reduction="none").double().sum()
        top1, top5 = hits(logits, labels)
        pairs = zip(labels.tolist(), first_guesses(logits).tolist(), strict=True) if with_confusion else ()
        confusion = add_counts(((label, guess, 1),) for label, guess in pairs)
    return LeafResult(len(batch.labels), int(top1), int(top5), float(loss), confusion)


def seen(replica: Replica, images: Tensor, odd: bool) -> Tensor:
    """The logits of images, or the mean of those of each image and its mirror image."""
    logits = replica.logits(images, None, odd=odd)
    if replica.recipe.evaluation.views == "one":
        return logits
    return (logits + replica.logits(images.flip(-1), None, odd=odd)) / 2


@contextmanager
def inference(replica: Replica) -> Iterator[None]:
    """The model as it is used, and not as it is trained."""
    import torch

    with replica.evaluating(), torch.inference_mode():
        yield
