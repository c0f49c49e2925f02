"""A torch `Dataset` of one's own, whose items are drawn at random when they are read, and a model of one's own.

    lockstep train examples/own_dataset.py:recipe --workers 2

The numbers that an item draws belong to (seed, epoch, index): the digest is the same for every number of workers, and
with any number of data processes.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.config import Data, Model, Recipe, Schedule


class Stripes(Dataset[tuple[Tensor, int]]):
    """Noise of 16 x 16 with a bright row or a bright column, another one whenever it is looked at."""

    classes = ("row", "column")

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, where = torch.rand(1, 16, 16), int(torch.randint(16, ()))
        image[0, where] = 1.0
        return (image, 0) if index % 2 == 0 else (image.transpose(1, 2).contiguous(), 1)


def stripes() -> tuple[Stripes, Stripes]:
    return Stripes(1024), Stripes(256)


class Net(nn.Module):
    def __init__(self, num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 5, stride=2), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).amax((2, 3)))  # type: ignore[no-any-return]


def recipe() -> Recipe:
    return Recipe(
        name="own-dataset",
        data=Data(source="own_dataset.py:stripes", processes=1),
        model=Model(name="own_dataset.py:Net"),
        schedule=Schedule(name="cosine", lr=0.1),
        global_batch=64,
        leaves=4,
        epochs=4,
    )
