"""Small loops of one's own, in this process."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lockstep
from lockstep.script.job import Batches, ScriptJob


def data(size: int = 32, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(size, 4, generator=generator)
    return DataLoader(
        TensorDataset(numbers, numbers.sum(1, keepdim=True)), **{"batch_size": 8, "shuffle": True, **options}
    )


def small(loader: DataLoader[Any] | None = None, steps: int = 2, **also: Any) -> tuple[Any, Any, ScriptJob, Batches]:
    """A model, its optimizer, a job and its steps."""
    torch.manual_seed(0)
    model = also.pop("model", None) or nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    job = lockstep.job(model=model, optimizer=optimizer, **also)
    return model, optimizer, job, job.batches(data() if loader is None else loader, steps=steps)


def compute(model: Any, step: Any) -> None:
    """The leaves of a step, and their exchange."""
    while not step.done:
        for x, y in step.leaves():
            step.backward(nn.functional.mse_loss(model(x), y))
        step.exchange()
