"""The built-in recipes: short functions that return a configuration, one file per family.

The docstring of a recipe gives its command, its cost and the accuracy to expect.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.config import Recipe
from lockstep.recipes import classic, demo, fast, imagenet, predecessors

RECIPES: dict[str, Callable[[], Recipe]] = {
    "demo": demo.demo,
    "fast-cifar10": fast.fast_cifar10,
    "resnet20-cifar10": classic.resnet20_cifar10,
    "resnet56-cifar10": classic.resnet56_cifar10,
    "resnet110-cifar10": classic.resnet110_cifar10,
    "wrn28-10-cifar10": classic.wrn28_10_cifar10,
    "wrn28-10-cifar100": classic.wrn28_10_cifar100,
    "resnet32-ray-cifar10": predecessors.resnet32_ray_cifar10,
    "resnet32-ray-cifar100": predecessors.resnet32_ray_cifar100,
    "resnet50-6n2-cifar10": predecessors.resnet50_6n2_cifar10,
    "resnet50-horovod-cifar10": predecessors.resnet50_horovod_cifar10,
    "alexnet-imagenet": imagenet.alexnet_imagenet,
    "imagenet-resnet50": imagenet.imagenet_resnet50,
    "imagenet-resnet50-modern": imagenet.imagenet_resnet50_modern,
}
