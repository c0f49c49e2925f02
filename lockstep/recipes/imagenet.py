"""ResNet-50 at 224 x 224 pixels. The images of ImageNet itself cannot be read yet: these run on random ones."""

from __future__ import annotations

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule


def imagenet_resnet50() -> Recipe:
    """ResNet-50 as the Slurm system trained it: batch 1024, the rate from 0.1 to 0.4 in five epochs, then drops.

    lockstep train imagenet-resnet50 --data synthetic-imagenet --workers 8

    For GPUs: 24 GFLOP per image, 112,320 steps (90 epochs). There: 62.6 to 64.4 % top1 with several processes;
    the network reaches 76 % with such settings in print.
    """
    return Recipe(
        name="imagenet-resnet50",
        data=Data(source="synthetic-imagenet", crop_padding=0, flip=True, standardize="channel"),
        model=Model(name="resnet", options={"depth": 50}),
        optimizer=Optimizer(momentum=0.9, weight_decay=1e-4),
        schedule=Schedule(
            name="step",
            lr=0.4,
            unit="steps",
            warmup=6240,
            warmup_from=0.25,
            boundaries=(37440, 74880, 99840),
            factors=(0.1, 0.01, 0.001),
        ),
        global_batch=1024,
        leaves=16,
        steps=112320,
        evaluation=Evaluation(every_steps=2500, leaf_batch=100),
        checkpoints=Checkpoints(every_steps=1248),
    )


def imagenet_resnet50_modern() -> Recipe:
    """ResNet-50 with what has been learnt since: cosine, label smoothing, mixup, no decay on biases and BatchNorm.

    lockstep train imagenet-resnet50-modern --data synthetic-imagenet --workers 8

    For GPUs: 24 GFLOP per image, 100 epochs; about 78 % top1 with such settings in print.
    """
    return Recipe(
        name="imagenet-resnet50-modern",
        data=Data(source="synthetic-imagenet", crop_padding=0, flip=True, standardize="channel", mixup=0.2),
        model=Model(name="resnet", options={"depth": 50, "zero_init": True}),
        optimizer=Optimizer(momentum=0.9, nesterov=True, weight_decay=5e-5, decay="kernels"),
        schedule=Schedule(name="cosine", lr=2.0, unit="epochs", warmup=5, warmup_from=0.0),
        label_smoothing=0.1,
        average=0.9999,
        global_batch=1024,
        leaves=16,
        epochs=100,
        evaluation=Evaluation(every_steps=2500, leaf_batch=100),
        checkpoints=Checkpoints(every_epochs=1),
    )
