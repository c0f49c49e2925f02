"""Exact evaluation: fixed leaves of the test set, every example counted once, in integers.

A worker computes the leaves that its rank says; the supervisor adds what all of them send, by leaf index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep.config import Evaluation

if TYPE_CHECKING:
    from lockstep.data.source import Source
    from lockstep.replica import Replica


@dataclass(frozen=True)
class LeafResult:
    """What one leaf of the test set gave."""

    count: int
    top1: int
    top5: int
    loss: float
    """The sum over its examples, in float64."""


def num_leaves(size: int, config: Evaluation) -> int:
    leaves = -(-size // config.leaf_batch)
    return min(leaves, config.max_leaves) if config.max_leaves else leaves


def combine(results: dict[int, LeafResult]) -> dict[str, Any]:
    """Figures over the whole test set. Losses are added in the order of leaves, so the sum has one value."""
    ordered = [results[leaf] for leaf in sorted(results)]
    count = sum(result.count for result in ordered)
    return {
        "examples": count,
        "top1": sum(result.top1 for result in ordered) / count,
        "top5": sum(result.top5 for result in ordered) / count,
        "loss": sum((result.loss for result in ordered), 0.0) / count,
    }


def evaluate_leaf(replica: Replica, source: Source, config: Evaluation, leaf: int) -> LeafResult:
    """Evaluate examples leaf * leaf_batch .. with the running statistics of BatchNorm and without augmentation."""
    import torch
    import torch.nn.functional as F

    from lockstep.data.source import in_order
    from lockstep.replica import hits

    first = leaf * config.leaf_batch
    batch = source.fetch(in_order(first, min(first + config.leaf_batch, len(source))))
    replica.model.eval()
    try:
        with torch.inference_mode():
            images, labels = replica.device.put(batch, replica.recipe.channels_last)
            logits = replica.logits(images, odd=len(batch.labels) != config.leaf_batch)
            loss = F.cross_entropy(logits, labels, reduction="none").double().sum()
            top1, top5 = hits(logits, labels)
    finally:
        replica.model.train()
    return LeafResult(len(batch.labels), int(top1), int(top5), float(loss))
