"""The classic way on Ray: `python -m bench.peers.objects`.

The driver puts the weights into the object store once, every actor takes some local steps from them and returns its own
as an object, and the driver averages them. Plainly written, as in the systems of old.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.peers.parts import Peer, write_measured
from bench.procfs import peak_memory_mib
from lockstep.data import open_dataset
from lockstep.request import find_recipe

Weights = dict[str, Any]

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}


class Trainer:
    """One actor: a model, an optimizer with momentum of its own, and its share of every batch."""

    def __init__(self, recipe: str, leaves: int, steps: int, rank: int, world: int) -> None:
        asked = replace(find_recipe(recipe), leaves=leaves)
        torch.set_num_threads(asked.threads)
        self._peer = Peer(asked, rank, world, steps, Path(os.devnull), open_dataset(asked.data, asked.seed))
        self._model = self._peer.model().train()
        self._optimizer = self._peer.optimizer(self._model)
        self._batches = self._peer.batches()
        self._first_step_at = 0.0

    def measured(self) -> tuple[float, float]:
        """When its first step was done, and the most memory that it had, in MiB."""
        return self._first_step_at, peak_memory_mib("self")

    def weights(self) -> Weights:
        return {name: tensor.numpy() for name, tensor in self._model.state_dict().items()}

    def train(self, weights: Weights, steps: int) -> Weights:
        self._model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        for _ in range(steps):
            self._optimizer.zero_grad()
            for images, labels in islice(self._batches, self._peer.micro_batches):
                (F.cross_entropy(self._model(images), labels) / self._peer.micro_batches).backward()
            self._optimizer.step()
            self._first_step_at = self._first_step_at or time.time()
        return self.weights()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--leaves", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--local-steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    os.environ.update(QUIET)
    import ray

    ray.init(num_cpus=given.world, include_dashboard=False, log_to_driver=False, configure_logging=False)
    actor: Any = ray.remote(num_cpus=1)(Trainer)
    trainers = [actor.remote(given.recipe, given.leaves, given.steps, rank, given.world) for rank in range(given.world)]
    weights: Any = ray.get(trainers[0].weights.remote())
    step_seconds = []
    for _ in range(given.steps // given.local_steps):
        started = time.perf_counter()
        shared = ray.put(weights)
        found: Any = ray.get([trainer.train.remote(shared, given.local_steps) for trainer in trainers])
        weights = {name: sum(one[name] for one in found) / given.world for name in weights}
        step_seconds += [(time.perf_counter() - started) / given.local_steps] * given.local_steps
    measured: Any = ray.get([trainer.measured.remote() for trainer in trainers])
    first_step_at, peak_mib = max(at for at, _ in measured), max(peak for _, peak in measured)
    write_measured(given.out, step_seconds, first_step_at, peak_mib)
    ray.shutdown()


if __name__ == "__main__":
    main()
