"""Processes beside a worker that read the items of a data set of the user's own, so that training need not wait.

Each calls the user's function for itself, and is asked for items by their numbers: what comes back does not depend on
how many there are. They end with the worker, however it ends; if one of them dies, all are replaced.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from lockstep.config import Data
from lockstep.data.items import Raw
from lockstep.data.order import Samples
from lockstep.data.own import Part, parts_of
from lockstep.errors import JobError
from lockstep.parent import LOST

MAX_DEATHS = 3
"""So often the processes may die over the same items."""


class DataProcesses:
    def __init__(self, data: Data, seed: int) -> None:
        self._data, self._seed = data, seed
        self._pool: ProcessPoolExecutor | None = None
        self._has_answered = True
        self._changes = threading.Lock()

    def part(self, name: str, size: int) -> Part:
        """What stands for the training or the test set in this process."""
        return _Elsewhere(self, name, size)

    def is_starting(self) -> bool:
        """Whether processes have been started and have not answered yet; opening the data may take its time."""
        return not self._has_answered

    def read(self, name: str, samples: Samples) -> Raw:
        """Items, a share of them from each process. Reading is pure, so what a death has cost is read again."""
        for _ in range(MAX_DEATHS):
            pool = self._started()
            try:
                shares = np.array_split(np.arange(len(samples)), min(self._data.processes, len(samples)))
                parts = [Samples(samples.epoch[share], samples.index[share]) for share in shares]
                found = [future.result() for future in [pool.submit(_read, name, part) for part in parts]]
                self._has_answered = True
                return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])
            except BrokenProcessPool:
                self._drop(pool)
        raise JobError(
            f"the data processes died {MAX_DEATHS} times over items {samples.index.min()} to {samples.index.max()}: "
            "see whether reading them ends the process, or whether the memory of this host is too small"
        )

    def _started(self) -> ProcessPoolExecutor:
        with self._changes:
            if self._pool is None:
                self._has_answered = False
                # A fork of a process that computes in threads may hang: every one is started anew.
                context = multiprocessing.get_context("spawn")
                given = (self._data, self._seed)
                self._pool = ProcessPoolExecutor(self._data.processes, context, initializer=_begin, initargs=given)
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        with self._changes:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)


class _Elsewhere:
    def __init__(self, processes: DataProcesses, name: str, size: int) -> None:
        self._processes, self._name, self._size = processes, name, size

    def __len__(self) -> int:
        return self._size

    def read(self, samples: Samples) -> Raw:
        return self._processes.read(self._name, samples)


# In a data process

_opened: tuple[Data, int] | dict[str, Part] | None = None


def _begin(data: Data, seed: int) -> None:
    global _opened
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    import torch  # noqa: F401, before the first item is read: its generator must be seeded too

    _opened = (data, seed)


def _end_with_the_worker() -> None:
    """The kernel closes the pipe that this waits for, also when the worker is killed."""
    worker = multiprocessing.parent_process()
    assert worker is not None
    worker.join()
    os._exit(LOST)


def _read(name: str, samples: Samples) -> Raw:
    global _opened
    if isinstance(_opened, tuple):  # here and not in `_begin`, so that what is raised reaches the user
        _opened = parts_of(*_opened)
    assert _opened is not None
    return _opened[name].read(samples)
