"""DDP, or with one process a bare loop, that trains a recipe to its end, or until the time is up, and evaluates:
`python -m bench.peers.accurate`.

Network, initial weights, optimizer, schedule, augmentation and evaluation are those of the recipe. Each process takes
its part of the batch in one piece, with the BatchNorm statistics of that piece, and DDP averages the gradients.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep import mixing, optim, parent
from lockstep.config import Evaluation
from lockstep.data import open_dataset
from lockstep.data.order import samples_of_leaf, steps_of_epochs
from lockstep.data.source import Source
from lockstep.device import Device
from lockstep.evaluate import evaluate_leaf, num_leaves
from lockstep.replica import Replica
from lockstep.request import Request, find_recipe, resolve


def main() -> None:
    given = arguments()
    asked = Request(
        data=given.data,
        seed=given.seed,
        steps=given.steps,
        epochs=given.epochs,
        precision=given.precision,
        settings=given.set,
    )
    recipe = resolve(find_recipe(given.recipe), asked)
    dataset = open_dataset(recipe.data, recipe.seed)
    device = Device("cpu", given.threads or recipe.threads, recipe.precision)
    num_steps = recipe.steps or steps_of_epochs(recipe.epochs or 0, len(dataset.train), recipe.global_batch)
    parts = Replica(recipe, dataset, num_steps, device)  # for model, preprocessing and schedule; it never sees a leaf
    model = parts.model if given.world == 1 else distributed(parts, given)
    model.train()
    optimizer = optim.build(recipe.optimizer, parts.model)
    found: list[dict[str, float]] = []
    for step in range(num_steps):
        samples = samples_of_leaf(recipe.seed, len(dataset.train), recipe.global_batch, given.world, step, given.rank)
        images, labels = device.put(dataset.train.fetch(samples), recipe.channels_last)
        images = parts.preprocess.resize(parts.preprocess.normalize(images), step)
        optimizer.zero_grad()
        with device.arithmetic():
            logits = model(images)
        mixing.loss(logits.float(), labels, None, recipe.label_smoothing).backward()
        optim.update(optimizer, recipe.optimizer, parts.learning_rate, step)
        done, every = step + 1, recipe.evaluation.every_steps
        is_over = done == num_steps or is_time_up(given.started + 60 * given.minutes)
        if is_over or (every and done % every == 0):
            top1 = evaluate(parts, dataset.test, recipe.evaluation)
            found.append({"step": done, "top1": top1, "seconds": time.time() - given.started})
        if is_over:
            break
    if given.rank == 0:
        given.out.write_text(json.dumps(found))
    if given.world > 1:
        dist.destroy_process_group()


def distributed(parts: Replica, given: argparse.Namespace) -> nn.Module:
    # A file to meet at needs no free port, which somebody else might take first.
    meeting = given.out.with_name("meeting").resolve().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=given.rank, world_size=given.world)
    return DistributedDataParallel(parts.model)


def arguments() -> argparse.Namespace:
    parent.follow()
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as `lockstep train` has it")
    parser.add_argument("--precision", help="that of the recipe by default")
    parser.add_argument("--threads", type=int, help="those of the recipe by default")
    parser.add_argument("--minutes", type=float, default=1e9, help="evaluate and end when so much time is up")
    parser.add_argument("--started", type=float, required=True, help="when the clock began, in seconds since 1970")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def is_time_up(end: float) -> bool:
    """As the first process sees it: all must end in the same step."""
    flag = torch.tensor([time.time() >= end])
    if dist.is_initialized():
        dist.broadcast(flag, 0)
    return bool(flag)


def evaluate(parts: Replica, test: Source, config: Evaluation) -> float:
    """top1 over the whole test set, each process a part of it."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    leaves = range(num_leaves(len(test), config))[rank::world]
    hits = torch.tensor(sum(evaluate_leaf(parts, test, config, leaf).top1 for leaf in leaves))
    if dist.is_initialized():
        dist.all_reduce(hits)
    return float(hits) / len(test)


if __name__ == "__main__":
    main()
