"""What a recipe names of the user's own code (model, data, loss, metric): by which names workers find it, where it
lies, and what of it does not go together. How such names are looked up is in `lockstep.references`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from lockstep import calling, inputs, models, references
from lockstep.config import Data, Recipe
from lockstep.data.source import Dataset
from lockstep.errors import UserError, unknown
from lockstep.goal import CROSS_ENTROPY

IMAGES_ONLY = (
    *("crop_padding", "pad_mode", "shift", "flip", "policy", "cutout", "erase", "mixup", "cutmix", "sizes"),
    *("standardize", "mean_image", "mean", "deviation"),
)
"""Keys of `data` that mean nothing where inputs are no images."""
OFF = (0, "none", "zero", (), None)
"""Values that ask for nothing; False is 0."""


def with_absolute_names(recipe: Recipe, base: Path) -> Recipe:
    """The same recipe with names by which workers find the user's code from any directory."""

    def absolute(name: str) -> str:
        return references.absolute(name, base) if references.is_reference(name) else name

    return replace(
        recipe,
        model=models.with_absolute_name(recipe.model, base),
        data=replace(recipe.data, source=absolute(recipe.data.source)),
        loss=absolute(recipe.loss),
        metric=None if recipe.metric is None else absolute(recipe.metric),
    )


def checksums(recipe: Recipe) -> dict[str, str]:
    """The SHA-256 of the files that the user's own functions are in; nothing of a module that is compiled."""
    files = {role: references.source_file(name) for role, name in inputs.own_code(recipe).items()}
    return {role: hashlib.sha256(file.read_bytes()).hexdigest() for role, file in files.items() if file is not None}


def directories(recipe: Recipe) -> tuple[Path, ...]:
    """Where the user's own code lies, for processes that must get it from elsewhere."""
    names = [name for name in (recipe.data.source, recipe.loss, recipe.metric or "") if "/" in name]
    own = [references.directory(name) for name in names if references.is_reference(name)]
    return tuple(dict.fromkeys([*models.directories(recipe.model), *own]))


def check_functions(recipe: Recipe) -> None:
    """Refuse a loss or a metric that is not there, or does not take outputs and targets, without importing it."""
    known = [(recipe.loss, "loss", [CROSS_ENTROPY]), (recipe.metric, "metric", [])]
    for name, kind, built_in in known:
        if name is None or name in built_in:
            continue
        if not references.is_reference(name):
            references.check_names_function(name, f"is the {kind}")
            raise unknown(kind, name, [*built_in, "file.py:function", "module:function"])
        calling.check_objective(name, kind, references.signature(name))


def check_fit(recipe: Recipe, dataset: Dataset) -> None:
    """Refuse what does not go together with the data, now that they are open."""
    if dataset.num_classes is None and recipe.loss == CROSS_ENTROPY:
        raise UserError(
            "the targets are floats, and cross-entropy needs the numbers of classes: give `loss` a function"
        )
    if not references.is_reference(recipe.model.name):
        if len(dataset.image_shape) != 3:
            raise UserError(
                f"the model {recipe.model.name} takes images, but inputs have the shape {dataset.image_shape}: name a "
                "model of your own, as file.py:function"
            )
        if dataset.num_classes is None:
            raise UserError(
                f"the model {recipe.model.name} tells classes apart, but the targets are floats: name a model of your "
                "own, as file.py:function"
            )
    _check_crop(recipe.data, dataset)


def for_floats(recipe: Recipe, asked: Collection[str] = ()) -> Recipe:
    """The recipe where inputs are no images: what it says of images is passed over, and what was `asked` for refused,
    unless that is to do nothing."""
    on = [f"data.{key}" for key in IMAGES_ONLY if getattr(recipe.data, key) not in OFF]
    on += ["evaluation.views"] if recipe.evaluation.views != "one" else []
    for name in on:
        if name in asked:
            raise UserError(f"{name} is for images in uint8, but the inputs are floats: leave it out")
    usual = {key: getattr(Data(), key) for key in IMAGES_ONLY}
    return replace(recipe, data=replace(recipe.data, **usual), evaluation=replace(recipe.evaluation, views="one"))


def _check_crop(data: Data, dataset: Dataset) -> None:
    """A crop from further out would show nothing of the image. What is there by default may be beyond tiny ones."""
    if not dataset.holds_images or data.crop_padding == Data().crop_padding:
        return
    side = min(dataset.image_shape[1:])
    if data.crop_padding > side:
        raise UserError(
            f"data.crop_padding is {data.crop_padding} pixels, and the shorter side of the images is {side}: give at "
            "most so many"
        )
