"""What the users of three earlier systems trained on CIFAR, with the same networks, data and schedules.

Those systems had the number of workers in their formulas; here `--scale` takes its place (see docs/recipes.md).
"""

from __future__ import annotations

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule

_P_STEPS = Schedule(name="step", lr=0.1, unit="steps", boundaries=(40000, 60000, 80000), factors=(0.1, 0.01, 0.001))


def resnet32_ray_cifar10() -> Recipe:
    """ResNet-32 with leaky ReLU on CIFAR-10, as the Ray example trained it.

    lockstep train resnet32-ray-cifar10 --data DIR --workers 4

    About 11 hours on two cores (0.42 GFLOP per image, 90,000 steps); about 92.5 % top1, as ResNet-32 in He et al. 2015
    (92.49 %). With `--scale S` the boundaries come sqrt(S) times earlier, as that example did with its workers.
    """
    return _resnet32_ray("cifar10")


def resnet32_ray_cifar100() -> Recipe:
    """ResNet-32 with leaky ReLU on CIFAR-100, as the Ray example trained it.

    lockstep train resnet32-ray-cifar100 --data DIR --workers 4

    About 11 hours on two cores (0.42 GFLOP per image, 90,000 steps); ResNet-32 reaches 68 to 70 % top1 in print.
    """
    return _resnet32_ray("cifar100")


def _resnet32_ray(source: str) -> Recipe:
    return Recipe(
        name=f"resnet32-ray-{source}",
        data=Data(source=source, crop_padding=2, flip=True, standardize="image"),
        model=Model(name="resnet-ray"),
        optimizer=Optimizer(momentum=0.9, weight_decay=2e-4, decay="kernels"),
        schedule=Schedule(
            name="step",
            lr=0.1,
            unit="steps",
            boundaries=(40000, 60000, 80000),
            factors=(0.1, 0.01, 0.001),
            with_scale="boundaries",
        ),
        global_batch=128,
        leaves=4,
        steps=90000,
        evaluation=Evaluation(every_steps=2000, leaf_batch=250),
        checkpoints=Checkpoints(every_steps=2000),
    )


def resnet50_6n2_cifar10() -> Recipe:
    """The 50-layer CIFAR ResNet (6n+2, n = 8) that the Slurm system trained on parameter servers.

    lockstep train resnet50-6n2-cifar10 --data DIR --workers 4

    About 20 hours on two cores (0.67 GFLOP per image, 90,000 steps); 93.6 % top1 there with one process, and 85.2 to
    87.3 % with several: here it is one result for any number of workers.
    """
    return Recipe(
        name="resnet50-6n2-cifar10",
        data=Data(source="cifar10", crop_padding=4, flip=True, standardize="image"),
        model=Model(name="resnet-cifar", options={"depth": 50, "version": 2, "shortcut": "projection-each-stage"}),
        optimizer=Optimizer(momentum=0.9, weight_decay=2e-4),
        schedule=_P_STEPS,
        global_batch=128,
        leaves=4,
        steps=90000,
        evaluation=Evaluation(every_steps=2000, leaf_batch=250),
        checkpoints=Checkpoints(every_steps=2000),
    )


def resnet50_horovod_cifar10() -> Recipe:
    """ResNet-50 v1 at 32 x 32 pixels as in the Horovod tutorial for Keras: shifts, flips, 40 epochs.

    lockstep train resnet50-horovod-cifar10 --data DIR --workers 4 --scale 4

    For GPUs: 7.8 GFLOP per image, about a day on two cores. The tutorial gives no accuracy, only a speed-up of about 3
    on 4 GPUs; expect about 90 % top1, which was not measured. `--scale 4` is the tutorial's training on 4 GPUs: four
    times the batch and, after a warm-up of five epochs, four times the learning rate.

    The network is not that of Keras in its stem, a 3 x 3 convolution without pooling, since the large one leaves a
    single pixel of 32 x 32, and in the stride of a bottleneck, which is in its 3 x 3 convolution. With
    `--set model.stem=imagenet --set model.stride_in=1x1` it is, but for biases that the norms behind them take away.
    """
    return Recipe(
        name="resnet50-horovod-cifar10",
        data=Data(source="cifar10", crop_padding=0, shift=0.2, flip=True, standardize="channel"),
        model=Model(name="resnet", options={"depth": 50, "stem": "cifar"}),
        optimizer=Optimizer(momentum=0.9, weight_decay=2e-6, decay="kernels"),
        schedule=Schedule(name="step", lr=0.01, unit="epochs", boundaries=(15, 25, 35), factors=(0.1, 0.01, 0.001)),
        global_batch=128,
        leaves=4,
        epochs=40,
        evaluation=Evaluation(every_steps=391, leaf_batch=250),
        checkpoints=Checkpoints(every_epochs=1),
    )
