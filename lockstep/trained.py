"""The model of a run, for use in this process: as it is evaluated, and without the data.

What the model must know of its data is in the run's `dataset.json`; for older runs the data are opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lockstep import checkpoint, generators, models, owncode, rundirectory, selection
from lockstep.config import Recipe
from lockstep.data import description, open_dataset
from lockstep.data.description import Description
from lockstep.errors import UserError
from lockstep.progress import Display
from lockstep.rundirectory import RunDirectory

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Trained:
    """A plain PyTorch module on the CPU, and what belongs to it."""

    model: nn.Module
    """In evaluation mode, with the moving average of the weights if the run has one."""
    recipe: Recipe
    """With the mean and deviation that images are normalised by."""
    described: Description
    run: str
    step: int


def load(run: str, wanted: str | int | None, display: Display) -> Trained:
    """The model of a checkpoint: of the newest good one, or the one that `wanted` says ("best", "last" or a step)."""
    directory = rundirectory.existing(run)
    recipe, _ = directory.read_config()
    selection.refuse_script(recipe, directory)
    described = describe(directory, recipe)
    if not described.holds_images:
        recipe = owncode.for_floats(recipe)
    models.check_model(recipe.model)
    with generators_kept(), selection.pinned(directory, wanted, display) as info:
        model = models.build(recipe.model, described.num_classes, described.image_shape)
        _fill(model, info)
        return Trained(model.eval(), with_channels(recipe, described), described, directory.path.name, info.step)


def _fill(model: nn.Module, info: checkpoint.Info) -> None:
    import torch

    state = checkpoint.load(info.path, {**dict(model.named_parameters()), **dict(model.named_buffers())})
    with torch.no_grad():
        for named in (model.named_parameters(), model.named_buffers()):
            for name, tensor in named:
                tensor.copy_((state.average or state.model)[name])


def describe(directory: RunDirectory, recipe: Recipe) -> Description:
    stored = description.from_plain(directory.read_json("dataset.json"))
    if stored is not None:
        return stored
    try:
        dataset = open_dataset(replace(recipe.data, processes=0), recipe.seed)
        return description.describe(dataset, description.with_channels(recipe.data, dataset, None))
    except UserError as error:
        raise UserError(f"{directory.name} has no dataset.json, so its data are needed, but {error}") from None


def with_channels(recipe: Recipe, described: Description) -> Recipe:
    """With the mean and deviation of the run's data, unless the recipe has its own."""
    if recipe.data.mean:
        return recipe
    return replace(recipe, data=replace(recipe.data, mean=described.mean, deviation=described.deviation))


@contextmanager
def generators_kept() -> Iterator[None]:
    """A caller's random numbers, threads and choice of algorithms are its own; setting up a model changes them."""
    import torch

    deterministic = torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads()
    try:
        with generators.kept():
            yield
    finally:
        torch._C._set_deterministic_algorithms(deterministic, warn_only=False)
        torch.set_num_threads(threads)
