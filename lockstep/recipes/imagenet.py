"""Large images: ResNet-50 and AlexNet at 224 x 224 pixels, on ImageNet or on images of one's own."""

from __future__ import annotations

from lockstep.config import Checkpoints, Data, Evaluation, Model, Optimizer, Recipe, Schedule

MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
"""Of the channels of ImageNet, as everyone has them."""


def alexnet_imagenet() -> Recipe:
    """AlexNet as the Ray example trained it: images squeezed to 256 x 256, a random 224 x 224 of them, flips.

    lockstep train alexnet-imagenet --data s3://BUCKET/ILSVRC2012_img_train --labels s3://BUCKET/train.txt

    Takes the 13 shards n015*.tar, as there; all with `--key-prefix n`. 500 images are held out for the test, unless
    --eval-data gives one. For GPUs: 4.3 GFLOP per image, 90 epochs; about 57 % top1 with all shards in print.
    """
    return Recipe(
        name="alexnet-imagenet",
        data=Data(
            source="imagenet",
            key_prefix="n015",
            hold_out=500,
            framing="square",
            crop_padding=0,
            flip=True,
            standardize="channel",
            mean=MEAN,
            deviation=DEVIATION,
        ),
        model=Model(name="alexnet"),
        optimizer=Optimizer(momentum=0.9, weight_decay=5e-4),
        schedule=Schedule(name="step", lr=0.01, unit="epochs", boundaries=(30, 60, 80), factors=(0.1, 0.01, 0.001)),
        global_batch=256,
        leaves=8,
        epochs=90,
        evaluation=Evaluation(every_steps=2500, leaf_batch=100),
        checkpoints=Checkpoints(every_epochs=1),
    )


def imagenet_resnet50() -> Recipe:
    """ResNet-50 as the Slurm system trained it: batch 1024, a warm-up in five epochs, then drops.

    The rate goes from 0.1 to 0.4 first. The short side of images is scaled to 256 to 512 pixels at random.

    lockstep train imagenet-resnet50 --data DIR --workers 8

    1001 classes, the first being background, with `--set data.background=true`. For GPUs: 24 GFLOP per image, 112,320
    steps (90 epochs). There: 62.6 to 64.4 % top1 with several processes; the network reaches 76 % with such settings
    in print.
    """
    return Recipe(
        name="imagenet-resnet50",
        data=Data(
            source="imagenet",
            framing="short-side",
            crop_padding=0,
            flip=True,
            standardize="channel",
            mean=MEAN,
            deviation=DEVIATION,
        ),
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
    """ResNet-50 with what has been learnt since: random-resized crops, cosine, label smoothing, mixup.

    There is no decay on biases and BatchNorm.

    lockstep train imagenet-resnet50-modern --data DIR --workers 8

    For GPUs: 24 GFLOP per image, 100 epochs; about 78 % top1 with such settings in print.
    """
    return Recipe(
        name="imagenet-resnet50-modern",
        data=Data(
            source="imagenet",
            framing="random-resized",
            crop_padding=0,
            flip=True,
            standardize="channel",
            mean=MEAN,
            deviation=DEVIATION,
            mixup=0.2,
        ),
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
