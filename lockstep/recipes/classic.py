"""The settings of the papers: CIFAR ResNets (He et al. 2015) and Wide ResNets (Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule


def resnet20_cifar10() -> Recipe:
    """ResNet-20 on CIFAR-10 as in He et al. 2015: batch 128, 64,000 steps.

    lockstep train resnet20-cifar10 --data DIR --workers 4

    About 5.5 hours on two cores (0.25 GFLOP per image); 91.25 % top1 in the paper.
    """
    return _resnet(20, Schedule(name="step", lr=0.1, unit="steps", boundaries=(32000, 48000), factors=(0.1, 0.01)))


def resnet56_cifar10() -> Recipe:
    """ResNet-56 on CIFAR-10 as in He et al. 2015: batch 128, 64,000 steps.

    lockstep train resnet56-cifar10 --data DIR --workers 4

    About 16 hours on two cores (0.76 GFLOP per image); 93.03 % top1 in the paper.
    """
    return _resnet(56, Schedule(name="step", lr=0.1, unit="steps", boundaries=(32000, 48000), factors=(0.1, 0.01)))


def resnet110_cifar10() -> Recipe:
    """ResNet-110 on CIFAR-10 as in He et al. 2015: 400 steps at 0.01 first, then as the smaller ones.

    lockstep train resnet110-cifar10 --data DIR --workers 4

    About 32 hours on two cores (1.5 GFLOP per image); 93.57 % top1 in the paper, 93.39 % on average.
    """
    boundaries, factors = (0, 400, 32000, 48000), (0.1, 1.0, 0.1, 0.01)
    return _resnet(110, Schedule(name="step", lr=0.1, unit="steps", boundaries=boundaries, factors=factors))


def _resnet(depth: int, schedule: Schedule) -> Recipe:
    return Recipe(
        name=f"resnet{depth}-cifar10",
        data=Data(source="cifar10", crop_padding=4, flip=True),
        model=Model(name="resnet-cifar", options={"depth": depth}),
        optimizer=Optimizer(momentum=0.9, weight_decay=1e-4),
        schedule=schedule,
        global_batch=128,
        leaves=4,
        steps=64000,
        evaluation=Evaluation(every_steps=2000, leaf_batch=250),
        checkpoints=Checkpoints(every_steps=2000),
    )


def wrn28_10_cifar10() -> Recipe:
    """Wide ResNet 28-10 on CIFAR-10 as in Zagoruyko and Komodakis 2016: batch 128, 200 epochs.

    lockstep train wrn28-10-cifar10 --data DIR --workers 4

    For GPUs: 31.5 GFLOP per image, about 25 days on two cores; 96.00 % top1 in the paper.
    """
    return _wide_resnet("cifar10")


def wrn28_10_cifar100() -> Recipe:
    """Wide ResNet 28-10 on CIFAR-100 as in Zagoruyko and Komodakis 2016: batch 128, 200 epochs.

    lockstep train wrn28-10-cifar100 --data DIR --workers 4

    For GPUs: 31.5 GFLOP per image, about 25 days on two cores; 80.75 % top1 in the paper.
    """
    return _wide_resnet("cifar100")


def _wide_resnet(source: str) -> Recipe:
    return Recipe(
        name=f"wrn28-10-{source}",
        data=Data(source=source, crop_padding=4, flip=True, standardize="channel"),
        model=Model(name="wide-resnet", options={"depth": 28, "width": 10}),
        optimizer=Optimizer(momentum=0.9, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(name="step", lr=0.1, unit="epochs", boundaries=(60, 120, 160), factors=(0.2, 0.04, 0.008)),
        global_batch=128,
        leaves=4,
        epochs=200,
        evaluation=Evaluation(every_steps=2000, leaf_batch=250),
        checkpoints=Checkpoints(every_epochs=1),
    )
