"""What a job will be: the data opened and looked at, the scale and the length worked out, and the plan of it all."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lockstep import checkpoint, compiler, evaluate, owncode, selection, strategies
from lockstep.check import check_course
from lockstep.config import Job, Recipe
from lockstep.data import description, keys, open_dataset
from lockstep.data.order import steps_of_epochs
from lockstep.data.source import Dataset
from lockstep.errors import UserError
from lockstep.request import Request, asked_of_data, names_of_settings
from lockstep.rundirectory import RunDirectory
from lockstep.scaling import scaled
from lockstep.script import describe as scripts
from lockstep.supervisor.plan import Plan


def opened(recipe: Recipe) -> Dataset:
    """The data, which this checks."""
    if recipe.script is not None:
        return scripts.dataset_of(recipe.script)
    dataset = open_dataset(replace(recipe.data, processes=0), recipe.seed)  # nothing starts here: only a look
    owncode.check_fit(recipe, dataset)
    return dataset


def length_of(recipe: Recipe, dataset: Dataset) -> int:
    """In steps, of a recipe whose scale is worked in."""
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    return steps_of_epochs(recipe.epochs, len(dataset.train), recipe.global_batch)


def plan_of(
    recipe: Recipe,
    job: Job,
    directory: RunDirectory,
    newest: checkpoint.Info | None,
    request: Request,
    dataset: Dataset | None = None,
) -> Plan:
    """Work out the scale and the length; open the data, if they are not; look for the compiler if one is needed."""
    if recipe.compile:
        compiler.check(recipe.device)
    dataset = dataset or opened(recipe)
    keys.check_own(recipe.data, asked_of_data(request), dataset.is_framed)
    if recipe.script is None and not dataset.holds_images:
        recipe = owncode.for_floats(recipe, names_of_settings(request))
    recipe = scaled(recipe)
    stored = description.from_plain(directory.read_json("dataset.json"))
    recipe = replace(recipe, data=description.with_channels(recipe.data, dataset, stored))
    num_steps = length_of(recipe, dataset)
    if not directory.exists() or (request.steps, request.epochs) != (None, None):  # otherwise it goes on as it began
        check_course(recipe, num_steps, len(dataset.train))
    if request.stop_at is not None and request.stop_at > num_steps:
        raise UserError(
            f"--stop-at {request.stop_at} is beyond the end, since the whole training has {num_steps} steps: give a "
            "smaller one, or a greater length"
        )
    last_step = num_steps if recipe.stop_at is None else min(recipe.stop_at, num_steps)
    strategies.rounds(job, num_steps).check_end(last_step)
    return Plan(
        recipe=recipe,
        job=job,
        directory=directory,
        dataset=dataset,
        num_steps=num_steps,
        last_step=last_step,
        num_evaluation_leaves=evaluate.num_leaves(len(dataset.test), recipe.evaluation),
        checkpoint=newest,
        best=selection.best_of(directory, newest),
        programs={
            "worker": request.program if recipe.script is None else scripts.program(recipe.script),
            "server": (sys.executable, "-m", strategies.STRATEGIES[job.strategy].program),
            "evaluator": (sys.executable, "-m", "lockstep.evaluator"),
        },
        files=owncode.directories(recipe) if recipe.script is None else (Path(recipe.script.path).parent,),
    )
