"""What a script's loop runs on: a replica of its model and optimizer, and a strategy; as a worker, or alone.

`recipe_of` is what the script is in the words of a recipe. A process that only describes it ends there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from lockstep import strategies, worker
from lockstep.check import check_recipe
from lockstep.config import Data, Job, Model, Recipe, Script
from lockstep.configfile import from_plain
from lockstep.device import Device
from lockstep.digest import digest, entries_of_tensors
from lockstep.errors import UserError
from lockstep.membership import Membership
from lockstep.replica import Given, Replica
from lockstep.script import session
from lockstep.script.describe import dataset_of
from lockstep.step import Step
from lockstep.strategies.synchronous import Synchronous
from lockstep.worker import Worker


@dataclass
class Training:
    recipe: Recipe
    replica: Replica
    strategy: Synchronous
    membership: Membership
    step: Step
    """The step to begin with."""
    last: int
    worker: Worker | None
    """None for a script that runs by itself: nobody asks for checkpoints, and nobody is told anything."""


@dataclass(frozen=True)
class Sizes:
    """What a loop says of itself."""

    num_samples: int
    global_batch: int
    leaves: int
    steps: int
    seed: int
    threads: int


def digest_of(model: nn.Module) -> str:
    return digest(entries_of_tensors([*model.named_parameters(), *model.named_buffers()]))


def probe() -> str:
    """What this process makes of a fixed computation: whoever makes something else of it is not let in. It cannot be a
    leaf of the script, which is computed by code in the middle of its loop."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)]
    network = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
    loss = nn.functional.cross_entropy(network(torch.rand(16, 3, 16, 16, generator=generator)), torch.arange(16) % 10)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return digest(entries_of_tensors((str(number), one) for number, one in enumerate(gradients)))


def recipe_of(sizes: Sizes, model: nn.Module, path: str, arguments: tuple[str, ...]) -> Recipe:
    """What is trained, as far as others than the script must know."""
    file = Path(path)
    script = Script(
        path=str(file.resolve()),
        arguments=arguments,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
        num_samples=sizes.num_samples,
        start_digest=digest_of(model),
    )
    recipe = Recipe(
        name=file.stem or "script",
        data=Data(source="script", standardize="none"),
        model=Model(name="script"),
        global_batch=sizes.global_batch,
        leaves=sizes.leaves,
        steps=sizes.steps,
        seed=sizes.seed,
        threads=sizes.threads,
        device="cuda" if next(model.parameters()).is_cuda else "cpu",
        channels_last=_is_channels_last(model),
        script=script,
    )
    check_recipe(recipe)
    return recipe


def _is_channels_last(model: nn.Module) -> bool:
    kernels = [parameter for parameter in model.parameters() if parameter.dim() == 4]
    return any(not k.is_contiguous() and k.is_contiguous(memory_format=torch.channels_last) for k in kernels)


def begin(sizes: Sizes, given: Given, device: Device) -> Training:
    """Take part in a job, train alone, or describe the script and end."""
    current = session.current
    if isinstance(current, session.Describing):
        _describe(current, sizes, given, device)
    path, arguments = (sys.argv[0], tuple(sys.argv[1:])) if current is None else _script_of(current)
    mine = recipe_of(sizes, given.model, path, arguments)
    if current is None:
        return _alone(mine, given, device)
    recipe, _ = from_plain(current.welcome["config"], "the supervisor's configuration")
    _check_same(mine, recipe)
    assert recipe.script is not None
    dataset = dataset_of(recipe.script)
    replica = Replica(recipe, dataset, current.welcome["num_steps"], device, given)
    made = worker.assemble(current.welcome, replica, dataset, current.membership, current.line)
    current.worker = made
    return Training(recipe, replica, made.strategy, made.membership, made.step, made.last, made)


def _script_of(current: session.Session) -> tuple[str, tuple[str, ...]]:
    script = from_plain(current.welcome["config"], "the supervisor's configuration")[0].script
    assert script is not None
    return script.path, script.arguments


def _alone(recipe: Recipe, given: Given, device: Device) -> Training:
    assert recipe.script is not None
    assert recipe.steps is not None
    dataset, membership = dataset_of(recipe.script), Membership.alone(recipe.leaves)
    replica = Replica(recipe, dataset, recipe.steps, device, given)
    strategy = strategies.build(Job(workers=1), recipe, dataset.train, replica, membership)
    return Training(recipe, replica, strategy, membership, strategy.first_step(0), recipe.steps, None)


def _describe(describing: session.Describing, sizes: Sizes, given: Given, device: Device) -> NoReturn:
    recipe = recipe_of(sizes, given.model, describing.path, describing.arguments)
    assert recipe.script is not None
    replica = Replica(recipe, dataset_of(recipe.script), sizes.steps, device, given)  # which refuses some models
    replica.copy_state()  # and what cannot be kept
    tell(describing.descriptor, {"recipe": dataclasses.asdict(recipe)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing of the script may run after this, not even its `finally`


def tell(descriptor: int, message: dict[str, Any]) -> None:
    """Say to the command what it waits for."""
    with os.fdopen(descriptor, "w") as pipe:
        json.dump(message, pipe)


def _check_same(mine: Recipe, described: Recipe) -> None:
    """Every process must train the same thing from the same weights."""
    assert mine.script is not None
    assert described.script is not None
    if mine.script.start_digest != described.script.start_digest:
        raise UserError(
            "the weights at the start differ from process to process: call torch.manual_seed(...) before the model is "
            "made, so that every worker begins with the same"
        )
    for what in ("global_batch", "leaves", "seed", "threads", "steps"):
        _require_same(what, getattr(mine, what), getattr(described, what))
    _require_same("the number of samples", mine.script.num_samples, described.script.num_samples)


def _require_same(what: str, here: Any, there: Any) -> None:
    if here != there:
        raise UserError(f"{what} is {here} in this worker and was {there} when the script was first run: look at both")
