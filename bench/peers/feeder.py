"""Feeds batches and throws them away: `python -m bench.peers.feeder LOADER BATCHES` prints images/s.

Images of CIFAR's size in memory; from a border of 4 pixels a window at random, half of them mirrored, standardised:
batches of 128 as floats. Everyone has one thread or process beside the one that takes them. The clock starts behind the
first batches.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

BATCH = 128
PADDING = 4
WARM_UP = 4
"""Batches: more than anyone reads ahead."""
POOL = 10_000


def ours(batches: int) -> Iterator[int]:
    """As a worker reads that computes every leaf of a batch, with the thread that reads ahead."""
    import torch

    from lockstep.config import Data
    from lockstep.data import open_dataset
    from lockstep.data.order import samples_of_leaf
    from lockstep.data.prefetch import Prefetcher
    from lockstep.data.source import Batch, layout_of

    data = Data(source="shapes", crop_padding=PADDING, flip=True)
    source = open_dataset(data, 0).train

    def read(step: int, leaf: int) -> Batch:
        return source.fetch(samples_of_leaf(0, layout_of(source), BATCH, 1, step, leaf))

    prefetcher = Prefetcher(read, data.prefetch)
    for step in range(batches):
        batch = prefetcher.take(step, 0, ((step + 1 + ahead, 0) for ahead in range(data.prefetch)))
        yield len(standardised(torch.from_numpy(batch.images).float()))
    prefetcher.close()


def standardised(images: Any) -> Any:
    """From 0 to 255, to numbers around 0; an array or a tensor."""
    return images / 63.75 - 2.0


def pool() -> tuple[Any, Any]:
    """As many images as ours has, which cost the same whatever they show."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (POOL, 3, 32, 32), dtype=np.uint8), random.integers(0, 10, POOL)


def data_loader(batches: int) -> Iterator[int]:
    """torch's, with a process beside, and every image transformed by itself as torchvision does it."""
    import torch
    import torch.nn.functional as F
    from torch.utils.data import DataLoader, Dataset

    images, labels = pool()

    class Images(Dataset[Any]):
        def __len__(self) -> int:
            return batches * BATCH

        def __getitem__(self, index: int) -> Any:
            padded = F.pad(torch.from_numpy(images[index % POOL]), [PADDING] * 4)
            top, left = torch.randint(0, 2 * PADDING + 1, (2,)).tolist()
            window = padded[:, top : top + 32, left : left + 32]
            if torch.rand(()) < 0.5:
                window = window.flip(-1)
            return standardised(window.float()), labels[index % POOL]

    for found, _ in DataLoader(Images(), BATCH, shuffle=True, num_workers=1):
        yield len(found)


def keras_layers(batches: int) -> Iterator[int]:
    """Keras' PyDataset, which `fit` takes, with a thread beside; its layers for whole batches."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras  # type: ignore[import-not-found, import-untyped, unused-ignore]

    images, labels = pool()
    images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    augment = keras.Sequential(
        [
            keras.layers.ZeroPadding2D(PADDING),
            keras.layers.RandomCrop(32, 32),
            keras.layers.RandomFlip("horizontal"),
            keras.layers.Rescaling(1 / 63.75, offset=-2.0),
        ]
    )

    class Images(keras.utils.PyDataset):  # type: ignore[misc, unused-ignore]
        def __len__(self) -> int:
            return batches

        def __getitem__(self, index: int) -> Any:
            chosen = np.random.default_rng(index).integers(0, POOL, BATCH)
            return augment(images[chosen], training=True), labels[chosen]

    from keras.src.trainers.data_adapters.py_dataset_adapter import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        PyDatasetAdapter,
    )

    for found, _ in PyDatasetAdapter(Images(workers=1), shuffle=False).get_torch_dataloader():
        yield len(found)


def ray_data(batches: int) -> Iterator[int]:
    """Ray Data, as Ray Train's users feed their loops: augmented in Ray's workers, a batch at a time."""
    from bench.peers.objects import QUIET

    os.environ.update(QUIET)
    import logging

    import ray
    import ray.data

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    logging.disable(logging.INFO)
    ray.data.DataContext.get_current().enable_progress_bars = False
    images, labels = pool()
    data = ray.data.range(batches * BATCH, override_num_blocks=-(-batches // 8)).map_batches(
        partial(_augment, images=ray.put(images), labels=ray.put(labels)), batch_size=BATCH
    )
    for found in data.iter_torch_batches(batch_size=BATCH, prefetch_batches=1):
        yield len(found["images"])


def _augment(batch: dict[str, Any], images: Any, labels: Any) -> dict[str, Any]:
    """Windows and mirror images by numpy, for all images of a batch at once."""
    import ray

    chosen = batch["id"] % POOL
    random = np.random.default_rng(int(chosen[0]))
    border = ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING))
    padded = np.pad(ray.get(images)[chosen], border)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(2, 3))
    top, left = random.integers(0, 2 * PADDING + 1, (2, len(chosen)))
    found = windows[np.arange(len(chosen)), :, top, left].astype(np.float32)
    mirrored = random.random(len(chosen)) < 0.5
    found[mirrored] = found[mirrored, :, :, ::-1]
    return {"images": standardised(found), "labels": ray.get(labels)[chosen]}


LOADERS: dict[str, Callable[[int], Iterator[int]]] = {
    "lockstep": ours,
    "dataloader": data_loader,
    "keras": keras_layers,
    "ray": ray_data,
}


def main() -> None:
    batches = int(sys.argv[2])
    fed = LOADERS[sys.argv[1]](WARM_UP + batches)
    for _ in range(WARM_UP):
        next(fed)
    started = time.perf_counter()
    images = sum(fed)
    print(images / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
