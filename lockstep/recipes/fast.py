"""The fastest way to 90 % on CIFAR-10 on two CPU cores, as far as we have come: see docs/fast-cifar10.md."""

from __future__ import annotations

from lockstep.config import Checkpoints, Data, Evaluation, Group, Model, Optimizer, Recipe, Schedule

_BATCH, _RATE = 512, 0.08


def fast_cifar10() -> Recipe:
    """CIFAR-10 in minutes on two cores: the network of airbench, Muon, and images that grow.

    lockstep train fast-cifar10 --data DIR --workers 2 --precision bf16

    90.4 % top1 or more on the test set of the JPEG copy (three seeds), within 14.4 minutes on two cores that have bf16;
    without --precision bf16 it takes 1.6 times as long, and on processors without bf16 that is the faster way.
    """
    return Recipe(
        name="fast-cifar10",
        data=Data(
            source="cifar10",
            crop_padding=2,
            pad_mode="reflect",
            flip="alternate",
            sizes=((0.4, 20), (0.7, 24), (1.0, 32)),
            standardize="channel",
        ),
        model=Model(name="airbench"),
        optimizer=Optimizer(
            name="muon",
            momentum=0.8,
            weight_decay=0.0,
            groups=(
                # The logits are the last layer's outputs divided by its width, so its rate is a large one.
                _plain("head.weight", 0.67 * _BATCH),
                _plain("*.bias", 0.053 * _BATCH),
            ),
        ),
        schedule=Schedule(name="triangular", lr=_RATE, peak=0.0),
        label_smoothing=0.2,
        global_batch=_BATCH,
        leaves=8,
        epochs=12,
        evaluation=Evaluation(leaf_batch=250, views="shifted"),
        checkpoints=Checkpoints(every_seconds=300.0),
    )


def _plain(match: str, rate: float) -> Group:
    """Parameters that are trained by SGD with this rate at the start, and a decay that does not depend on it."""
    return Group(match=match, lr=rate / _RATE, momentum=0.85, weight_decay=2e-6 * _BATCH / rate, orthogonal=False)
