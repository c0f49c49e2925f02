"""Of an ordinary `DataLoader`: data set, collate function, batch size and number of processes. Order and iteration are
ours: a leaf's samples are a function of the seed, the step and the leaf, and are read by whoever computes it.

A sample is read with all global generators seeded by (seed, epoch, index), so that augmentation is the same in every
process; the collate function by the first of its samples.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import random
import signal
import sys
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from lockstep.data.order import Samples
from lockstep.errors import UserError

AHEAD_PER_PROCESS = 2
"""Leaves that are read ahead for every data process."""


@dataclass(frozen=True)
class Parts:
    """What is taken of a loader."""

    dataset: Any
    collate: Callable[[list[Any]], Any]
    batch_size: int
    num_processes: int

    def __len__(self) -> int:
        return len(self.dataset)


def take_apart(loader: Any, trains: bool) -> Parts:
    """The parts; whatever of the loader would have no effect, or an order of its own, is refused."""
    if not isinstance(loader, DataLoader):
        raise UserError(f"give a torch.utils.data.DataLoader, and not {type(loader).__name__}")
    if isinstance(loader.dataset, IterableDataset):
        raise UserError("an IterableDataset has no length and no index: make it a Dataset with __len__ and __getitem__")
    if loader.batch_size is None:
        raise UserError("the DataLoader has no batch size of its own: give it batch_size, and no batch_sampler")
    if trains:
        _check_order(loader)
    if loader.worker_init_fn is not None:
        raise UserError(
            "leave worker_init_fn out of the DataLoader: every sample is read with generators seeded by job and sample"
        )
    if len(loader.dataset) == 0:  # type: ignore[arg-type]
        raise UserError("the data set of the DataLoader is empty")
    return Parts(loader.dataset, loader.collate_fn, loader.batch_size, loader.num_workers)


def _check_order(loader: DataLoader[Any]) -> None:
    sampler = loader.sampler
    if isinstance(sampler, SequentialSampler):
        raise UserError("a training set is shuffled in every epoch: create its DataLoader with shuffle=True")
    drawn = isinstance(sampler, RandomSampler) and not sampler.replacement and sampler._num_samples is None
    if not drawn:
        raise UserError(
            f"the DataLoader has a sampler with a state of its own ({type(sampler).__name__}), which workers could not "
            "agree on: leave it out, and take shuffle=True"
        )
    if loader.generator is not None:
        raise UserError("leave generator out of the DataLoader: the order of samples comes from lockstep.job(seed=...)")


def read(parts: Parts, seed: int, samples: Samples) -> Any:
    """The collated batch of some samples: a pure function."""
    pairs = list(zip(samples.epoch.tolist(), samples.index.tolist(), strict=True))
    items = []
    for epoch, index in pairs:
        _seed(f"lockstep sample {seed} {epoch} {index}")
        items.append(parts.dataset[index])
    _seed(f"lockstep collate {seed} {pairs[0]}")
    return parts.collate(items)


def _seed(text: str) -> None:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
    torch.default_generator.manual_seed(number)  # not the GPU's: a data process must not touch it
    np.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


class Reader:
    """Reads batches in this process, or ahead of time in data processes that follow the plan."""

    def __init__(self, parts: Parts, seed: int) -> None:
        self.parts = parts
        self._seed = seed
        self._pool: ProcessPoolExecutor | None = None
        self._ahead: dict[Hashable, Future[Any]] = {}

    def take(self, key: Hashable, samples: Callable[[Any], Samples], upcoming: Iterable[Hashable]) -> Any:
        """The batch of a key; then the next ones are begun. What is no longer planned is dropped."""
        if not self.parts.num_processes:
            return read(self.parts, self._seed, samples(key))
        wanted = [key for _, key in zip(range(AHEAD_PER_PROCESS * self.parts.num_processes), upcoming, strict=False)]
        for old in set(self._ahead) - {key, *wanted}:
            self._ahead.pop(old).cancel()
        for one in (key, *wanted):
            if one not in self._ahead:
                self._ahead[one] = self._processes().submit(_read_there, samples(one))
        return self._ahead.pop(key).result()

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Forked, so that neither the script nor the data set has to travel.
            context, arguments = multiprocessing.get_context("fork"), (self.parts, self._seed)
            self._pool = ProcessPoolExecutor(self.parts.num_processes, context, _begin_there, arguments)
        return self._pool


_there: tuple[Parts, int] | None = None
"""In a data process: what it reads."""


def _begin_there(parts: Parts, seed: int) -> None:
    global _there
    _there = parts, seed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # to end with the worker, whose connections were inherited
    torch.set_num_threads(1)


def _read_there(samples: Samples) -> Any:
    assert _there is not None
    return read(*_there, samples)
