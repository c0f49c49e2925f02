"""ResNet-20 on random images as a training script of one's own, for `lockstep launch`; see `bench/ownloop.py`."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import lockstep
from bench import recipes
from lockstep import models
from lockstep.data import open_dataset
from lockstep.data.source import in_order
from lockstep.preprocess import standardize

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--leaves", type=int, required=True)
options = parser.parse_args()
recipe = recipes.resnet20()
source = open_dataset(recipe.data, recipe.seed)


class Images(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return len(source.train)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        one = (source.plain or source.train).fetch(in_order(index, index + 1))
        return torch.from_numpy(one.images[0]), int(one.labels[0])


torch.manual_seed(0)
model = models.build(recipe.model, source.num_classes, source.image_shape)
model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
loader = DataLoader(Images(), batch_size=recipe.global_batch, shuffle=True)

job = lockstep.job(model=model, optimizer=optimizer)
for step in job.batches(loader, steps=options.steps, leaves=options.leaves):
    while not step.done:
        for images, labels in step.leaves():
            logits = model(standardize(images.contiguous(memory_format=torch.channels_last).float()))
            step.backward(F.cross_entropy(logits, labels), top1=(logits.argmax(1) == labels).sum())
        step.exchange()
    optimizer.step()
