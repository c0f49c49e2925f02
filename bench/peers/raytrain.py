"""Ray Train's TorchTrainer: `python -m bench.peers.raytrain`. DistributedDataParallel in Ray's own workers.

With `--restarts` Ray starts all workers again when one dies, and they resume from the newest checkpoint, as under
torchrun; `--out` is then a directory, which they share.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.peers.objects import QUIET


def train_loop(given: dict[str, Any]) -> None:
    """What runs in every worker; the first one writes down how long its steps took."""
    import ray.train
    import ray.train.torch
    import torch
    import torch.nn.functional as F

    from bench.peers import elastic
    from bench.peers.parts import Peer
    from lockstep.data import open_dataset
    from lockstep.request import find_recipe

    recipe = replace(find_recipe(given["recipe"]), leaves=given["leaves"])
    torch.set_num_threads(recipe.threads)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    dataset = open_dataset(recipe.data, recipe.seed)
    peer = Peer(recipe, rank, world, given["steps"], Path(given["out"]), dataset)
    if given["restarts"]:
        elastic.train(peer)
        return
    model: Any = ray.train.torch.prepare_model(peer.model().train(), move_to_device=False)
    optimizer, batches = peer.optimizer(model), peer.batches()
    for _ in peer.timed_steps():
        optimizer.zero_grad()
        for number in range(peer.micro_batches):
            is_last = number == peer.micro_batches - 1
            with contextlib.nullcontext() if is_last or world == 1 else model.no_sync():  # one is not wrapped
                images, labels = next(batches)
                (F.cross_entropy(model(images), labels) / peer.micro_batches).backward()
        optimizer.step()
    if rank == 0:
        peer.finish()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--leaves", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--restarts", type=int, default=0, metavar="N", help="start again so often")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    os.environ.update(QUIET)
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    # Workers of Ray inherit nothing from here.
    variables = {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    ray.init(given.address, log_to_driver=False, configure_logging=False, runtime_env={"env_vars": variables})
    config = {name: getattr(given, name) for name in ("recipe", "leaves", "steps", "restarts")}
    started = time.perf_counter()
    TorchTrainer(
        train_loop,
        train_loop_config={**config, "out": str(given.out)},
        scaling_config=ScalingConfig(num_workers=given.world),
        run_config=RunConfig(
            storage_path=str(given.out.parent), name="raytrain", failure_config=FailureConfig(given.restarts)
        ),
    ).fit()
    print(f"{time.perf_counter() - started:.1f} s")
    ray.shutdown()


if __name__ == "__main__":
    main()
