"""Exact evaluation: fixed leaves of the test set, every example counted once, in integers.

A worker computes the leaves that its rank says; the supervisor adds what all of them send, by leaf index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep.config import Evaluation

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.order import Samples
    from lockstep.data.source import Source
    from lockstep.replica import Replica

Counts = tuple[tuple[int, int, int], ...]
"""(class, first guess, how often), ascending, without zeros."""


@dataclass(frozen=True)
class LeafResult:
    """What one leaf of the test set gave."""

    count: int
    top1: int | None
    """None, as `top5`, where there are no classes, or a script does not count it."""
    top5: int | None
    loss: float
    """The sum over its examples, in float64."""
    confusion: Counts = ()
    """How often each class was taken for each other, where that was asked for."""
    sums: tuple[tuple[str, int | float], ...] = ()
    """Other sums over its examples by name, ascending: of the recipe's own metric, or what a script has."""


def num_leaves(size: int, config: Evaluation) -> int:
    leaves = -(-size // config.leaf_batch)
    return min(leaves, config.max_leaves) if config.max_leaves else leaves


def combine(results: dict[int, LeafResult]) -> dict[str, Any]:
    """Figures over the whole test set. Losses are added in the order of leaves, so the sum has one value; so are other
    sums."""
    ordered = [results[leaf] for leaf in sorted(results)]
    count = sum(result.count for result in ordered)
    confusion = add_counts(result.confusion for result in ordered)
    columns: dict[str, list[Any]] = {
        "top1": [result.top1 for result in ordered],
        "top5": [result.top5 for result in ordered],
        "loss": [result.loss for result in ordered],
    }
    for result in ordered:
        for name, value in result.sums:
            columns.setdefault(name, []).append(value)
    return {
        "examples": count,
        **{name: sum(column) / count for name, column in columns.items() if None not in column},
        **({"confusion": confusion} if confusion else {}),
    }


def add_counts(parts: Iterable[Counts]) -> Counts:
    """The sum of several tables."""
    total: Counter[tuple[int, int]] = Counter()
    for part in parts:
        for label, guess, count in part:
            total[label, guess] += count
    return tuple((label, guess, count) for (label, guess), count in sorted(total.items()))


def samples_of(leaf: int, source: Source, config: Evaluation) -> Samples:
    """The examples of a leaf."""
    from lockstep.data.source import in_order

    first = leaf * config.leaf_batch
    return in_order(first, min(first + config.leaf_batch, len(source)))


def announce(leaves: Sequence[int], source: Source, config: Evaluation) -> None:
    """Let a source that is far away know which leaves are evaluated next."""
    from lockstep.data.source import read_ahead

    read_ahead(source, (samples_of(leaf, source, config) for leaf in leaves))


def evaluate_leaf(
    replica: Replica, source: Source, config: Evaluation, leaf: int, with_confusion: bool = False
) -> LeafResult:
    """Evaluate examples leaf * leaf_batch .. with the running statistics of BatchNorm and without augmentation."""
    from lockstep.objective import first_guesses

    batch = source.fetch(samples_of(leaf, source, config))
    with inference(replica):
        images, labels = replica.device.put(batch, replica.recipe.channels_last)
        logits = seen(replica, images, odd=len(batch.labels) != config.leaf_batch)
        loss = replica.objective.sum_of_losses(logits, labels)
        hits = replica.objective.hits(logits, labels)
        sums = replica.objective.sums(logits, labels)
        has_pairs = with_confusion and hits is not None
        pairs = zip(labels.tolist(), first_guesses(logits).tolist(), strict=True) if has_pairs else ()
        confusion = add_counts(((label, guess, 1),) for label, guess in pairs)
    top1, top5 = (None, None) if hits is None else map(int, hits)
    return LeafResult(len(batch.labels), top1, top5, float(loss), confusion, sums)


def seen(replica: Replica, images: Tensor, odd: bool) -> Tensor:
    """The logits of images, or the mean over as many views of them as the recipe wants."""

    def both_sides(images: Tensor) -> Tensor:
        return (replica.logits(images, None, odd=odd) + replica.logits(images.flip(-1), None, odd=odd)) / 2

    match replica.recipe.evaluation.views:
        case "one":
            return replica.logits(images, None, odd=odd)
        case "mirror":
            return both_sides(images)
        case "shifted":
            aside = both_sides(shifted(images, 1)) + both_sides(shifted(images, -1))
            return (both_sides(images) + aside / 2) / 2


def shifted(images: Tensor, pixels: int) -> Tensor:
    """Moved by so many pixels down and to the right; what comes in is the image mirrored at its edge."""
    import torch

    for axis in (-2, -1):
        last = images.shape[axis] - 1
        places = [last - abs(last - abs(place - pixels)) for place in range(last + 1)]
        images = images.index_select(axis, torch.tensor(places, device=images.device))
    return images


@contextmanager
def inference(replica: Replica) -> Iterator[None]:
    """The model as it is used, and not as it is trained."""
    import torch

    with replica.evaluating(), torch.inference_mode():
        yield
