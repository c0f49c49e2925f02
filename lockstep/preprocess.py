"""From the bytes of a batch to what the model sees: numbers of a common size, and images of the size of the day.

This runs on the device. What happens to single images before, in uint8, is augmentation (`data/augment.py`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.config import Data
from lockstep.data import meanimage
from lockstep.data.source import Dataset
from lockstep.errors import UserError


class Preprocess:
    def __init__(self, data: Data, dataset: Dataset, num_steps: int, device: torch.device) -> None:
        self._data = data
        self._num_steps = num_steps
        self._holds_images = dataset.holds_images
        self._device = device
        self._channels = self._channels_of(dataset) if data.standardize == "channel" else None
        self._mean_image = self._load_mean_image(dataset) if data.standardize == "mean-image" else None

    def _load_mean_image(self, dataset: Dataset) -> Tensor:
        return torch.from_numpy(meanimage.load(self._data, dataset.image_shape)).to(self._device)

    def _channels_of(self, dataset: Dataset) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the channels: from the recipe, or of the training set."""
        found = self._data if self._data.mean else dataset.channels
        if len(found.mean) != dataset.image_shape[0]:
            raise UserError(
                f"data.mean has {len(found.mean)} numbers, but the images have {dataset.image_shape[0]} channels: give "
                "one for each, or leave data.mean and data.deviation out"
            )

        def per_channel(values: tuple[float, ...]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=self._device)[:, None, None]

        return per_channel(found.mean), per_channel(found.deviation)

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 to float, as `data.standardize` says; what are no images stay as they are."""
        images = images.float()
        if not self._holds_images:
            return images
        if self._channels is not None:
            mean, deviation = self._channels
            return (images - mean) / deviation
        if self._mean_image is not None:
            return images - self._mean_image
        if self._data.standardize == "none":
            return images / 255.0
        return standardize(images)

    def resize(self, images: Tensor, step: int | None) -> Tensor:
        """Scale images to the side that `data.sizes` has for a step; None is evaluation, which takes the last one."""
        side = side_at(self._data.sizes, None if step is None else step / self._num_steps)
        if side is None or side == images.shape[-1]:
            return images
        return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)

    def first_steps(self) -> list[int]:
        """The first step of each size."""
        return [0, *(math.ceil(until * self._num_steps) for until, _ in self._data.sizes[:-1])]


def side_at(sizes: tuple[tuple[float, int], ...], done: float | None) -> int | None:
    """The side of images when so much of the run is done; None leaves them as they are."""
    if not sizes:
        return None
    return next((side for until, side in sizes if done is not None and done < until), sizes[-1][1])


def standardize(images: Tensor) -> Tensor:
    """Per-image standardisation: (x - mean) / max(deviation, 1/sqrt(n))."""
    size = images[0].numel()
    deviation, mean = torch.std_mean(images, dim=(1, 2, 3), keepdim=True, correction=0)
    return (images - mean) / deviation.clamp_min(size**-0.5)
