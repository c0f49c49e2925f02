"""What the peers are made of: the model, optimizer and batches of a recipe. Their loops are in the files beside this.

The data comes through the same source and the same kind of prefetching as in Lockstep, so that a difference is one of
the loops.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bench.procfs import peak_memory_mib
from lockstep import models, parent
from lockstep.config import Recipe
from lockstep.data import open_dataset
from lockstep.data.order import samples_of_leaf
from lockstep.data.source import Batch, Dataset, layout_of
from lockstep.preprocess import standardize
from lockstep.request import find_recipe


@dataclass
class Peer:
    """A process that trains its share of a recipe."""

    recipe: Recipe
    rank: int
    world: int
    num_steps: int
    out: Path
    """The file for its measurements; a directory for those who are killed, which they share."""
    dataset: Dataset
    step_seconds: list[float] = field(default_factory=list)
    first_step_at: float = 0.0
    """When the first step was done, in seconds since 1970."""

    @property
    def micro_batches(self) -> int:
        """How many this process computes in a step."""
        return self.recipe.leaves // self.world

    def model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        model = models.build(self.recipe.model, self.dataset.num_classes, self.dataset.image_shape)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        config = self.recipe.optimizer
        return torch.optim.SGD(
            model.parameters(),
            lr=self.recipe.schedule.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """My micro-batches, step after step, the next few of them already under way in a thread."""
        keys = ((step, leaf) for step in range(self.num_steps) for leaf in self._leaves())
        with ThreadPoolExecutor(max_workers=1) as pool:
            ahead: deque[Future[Batch]] = deque()
            ahead.extend(pool.submit(self._read, *key) for key in islice(keys, self.recipe.data.prefetch + 1))
            while ahead:
                batch = ahead.popleft().result()
                ahead.extend(pool.submit(self._read, *key) for key in islice(keys, 1))
                yield prepared(batch)

    def batches_of(self, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """My micro-batches of a step; for loops whose steps repeat or leap."""
        return (prepared(self._read(step, leaf)) for leaf in self._leaves())

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """My micro-batch of a step, of which I have one."""
        (batch,) = self.batches_of(step)
        return batch

    def timed_steps(self) -> Iterator[int]:
        """The steps; what the loop does in each is timed."""
        for step in range(self.num_steps):
            start = time.perf_counter()
            yield step
            self.first_step_at = self.first_step_at or time.time()
            self.step_seconds.append(time.perf_counter() - start)

    def finish(self) -> None:
        """Hand the measurements back to the benchmark."""
        write_measured(self.out, self.step_seconds, self.first_step_at)

    def save_weights(self, model: nn.Module) -> None:
        """Hand the final weights back, at once or not at all."""
        temporary, path = (self.out / f"{name}{self.rank}.safetensors" for name in ("part", "final"))
        save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, temporary)
        temporary.replace(path)

    def _leaves(self) -> range:
        return range(self.rank * self.micro_batches, (self.rank + 1) * self.micro_batches)

    def _read(self, step: int, leaf: int) -> Batch:
        r = self.recipe
        source = self.dataset.train
        return source.fetch(samples_of_leaf(r.seed, layout_of(source), r.global_batch, r.leaves, step, leaf))


def write_measured(out: Path, step_seconds: list[float], first_step_at: float, peak_mib: float | None = None) -> None:
    """What `contestants.PeerRun` is made of; the memory is that of this process unless it is said."""
    peak_mib = peak_memory_mib("self") if peak_mib is None else peak_mib
    out.write_text(json.dumps({"step_seconds": step_seconds, "peak_mib": peak_mib, "first_step_at": first_step_at}))


def prepared(batch: Batch) -> tuple[Tensor, Tensor]:
    """uint8 arrays to standardised images, channels last."""
    images = torch.from_numpy(batch.images).contiguous(memory_format=torch.channels_last)
    return standardize(images.float()), torch.from_numpy(batch.labels)


def from_command_line() -> Peer:
    parent.follow()
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--leaves", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    # torchrun says the last two in the environment
    parser.add_argument("--rank", type=int, default=os.environ.get("RANK"))
    parser.add_argument("--world", type=int, default=os.environ.get("WORLD_SIZE"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    recipe = replace(find_recipe(given.recipe), leaves=given.leaves)
    torch.set_num_threads(recipe.threads)
    dataset = open_dataset(recipe.data, recipe.seed)
    return Peer(recipe, given.rank, given.world, given.steps, given.out, dataset)
