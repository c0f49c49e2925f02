"""CIFAR-10 from its binary files, as an ordinary data set for a DataLoader."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class Cifar10(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, directory: str, train: bool) -> None:
        paths = sorted(Path(directory).glob("data_batch_*.bin" if train else "test_batch.bin"))
        if not paths:
            raise SystemExit(f"{directory} has no binary files of CIFAR-10: give the directory cifar-10-batches-bin")
        records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in paths])
        self.labels = torch.from_numpy(records[:, 0].astype(np.int64))
        self.images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index] / 127.5 - 1
        if self.train:  # a random crop, and a flip
            down, right, flip = torch.randint(0, 9, (3,)).tolist()
            image = torch.nn.functional.pad(image, (4, 4, 4, 4))[:, down : down + 32, right : right + 32]
            image = image.flip(2) if flip % 2 else image
        return image, self.labels[index]
