"""Keras `fit` on its torch back end: `python -m bench.peers.kerasfit`. The only file that builds a network in Keras.

The ResNet-20 of `bench/recipes.py` once more, trained by `fit` as its users do: one batch of 128 at a time, arrays in
memory, `compile` with SGD and momentum.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported

import keras  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from bench.peers import parts
from lockstep.data.order import Samples
from lockstep.models.resnet_cifar import CHANNELS

BLOCKS_PER_STAGE = 3
DECAY = 1e-4


def main() -> None:
    peer = parts.from_command_line()
    keras.utils.set_random_seed(peer.recipe.seed)
    keras.config.set_image_data_format("channels_first")  # what torch computes with; the other way copies
    channels, height, width = peer.dataset.image_shape
    assert peer.dataset.num_classes is not None
    model = resnet20((channels, height, width), peer.dataset.num_classes)
    optimizer = keras.optimizers.SGD(peer.recipe.schedule.lr, momentum=peer.recipe.optimizer.momentum)
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = arrays(peer)
    batch = peer.recipe.global_batch
    model.fit(images, labels, batch_size=batch, epochs=1, verbose=0, shuffle=False, callbacks=[clock(peer)])
    peer.finish()


def arrays(peer: parts.Peer) -> tuple[Any, Any]:
    """As many standardised images as the steps need: they repeat, as in the other contestants."""
    index = np.arange(peer.num_steps * peer.recipe.global_batch)
    images, labels = parts.prepared(peer.dataset.train.fetch(Samples(np.zeros_like(index), index)))
    return images.contiguous().numpy(), labels.numpy()


def clock(peer: parts.Peer) -> Any:
    """Notes how long every batch takes."""
    steps = peer.timed_steps()

    class Clock(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            next(steps)

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            if batch == 0:
                peer.first_step_at = time.time()

        def on_train_end(self, logs: object = None) -> None:
            next(steps, None)  # ends the last one

    return Clock()


def resnet20(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """He et al. 2015: three stages of three blocks, shortcuts without parameters."""
    layers = keras.layers
    images = keras.Input(image_shape)
    x = layers.ReLU()(_norm()(_conv(CHANNELS[0], 1)(images)))
    channels_in = CHANNELS[0]
    for channels in CHANNELS:
        for _ in range(BLOCKS_PER_STAGE):
            stride = 1 if channels == channels_in else 2
            y = layers.ReLU()(_norm()(_conv(channels, stride)(x)))
            y = _norm()(_conv(channels, 1)(y))
            x = layers.ReLU()(layers.Add()([y, x if stride == 1 else Pad(channels - channels_in)(x)]))
            channels_in = channels
    return keras.Model(images, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(x)))


def _conv(channels: int, stride: int) -> Any:
    decay = keras.regularizers.L2(DECAY / 2)
    return keras.layers.Conv2D(channels, 3, stride, padding="same", use_bias=False, kernel_regularizer=decay)


def _norm() -> Any:
    return keras.layers.BatchNormalization(axis=1, momentum=0.9, epsilon=1e-5)


class Pad(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Every second pixel, and zeros for the new channels, half of them on each side."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self._new_channels = new_channels

    def call(self, x: Any) -> Any:
        half = self._new_channels // 2
        return keras.ops.pad(x[:, :, ::2, ::2], [[0, 0], [half, self._new_channels - half], [0, 0], [0, 0]])

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        images, channels, *sides = (size or 0 for size in shape)
        return (images or None, channels + self._new_channels, *((side + 1) // 2 for side in sides))


if __name__ == "__main__":
    main()
