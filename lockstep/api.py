"""What the command does, as functions: everything is checked here, before any process starts.

`train`, `launch`, `resume` and `evaluate_run` run a job on the supervisor in this process and return when it is over;
`predict` uses what was trained. They raise UserError for what the user can mend and JobError when the job failed.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lockstep import (
    checkpoint,
    deletion,
    injection,
    lengths,
    moving,
    owncode,
    runcode,
    rundirectory,
    selection,
    strategies,
)
from lockstep.check import check_recipe
from lockstep.config import Job, Recipe
from lockstep.data import description, meanimage
from lockstep.data.records import NOT_SHARED
from lockstep.engines import ENGINES
from lockstep.errors import JobError, UserError
from lockstep.follow import follow
from lockstep.inputs import Inputs
from lockstep.planning import length_of, opened, plan_of
from lockstep.predict import Guess, Prediction, predict
from lockstep.progress import Display, Silent
from lockstep.rank import take_part
from lockstep.report import confusion
from lockstep.request import (
    Request,
    check_script_options,
    cost_of_workers,
    find_recipe,
    resolve,
    resolve_job,
    with_end,
    with_length,
)
from lockstep.result import Run
from lockstep.rundirectory import RunDirectory
from lockstep.scaling import scaled
from lockstep.script import describe as scripts
from lockstep.settings import ignored
from lockstep.steering import command
from lockstep.supervisor import run as supervisor
from lockstep.supervisor.archive import record_inputs, stored_verified
from lockstep.supervisor.plan import Plan, Result

__all__ = [
    "Guess",
    "Prediction",
    "Run",
    "check",
    "command",
    "evaluate_run",
    "follow_run",
    "launch",
    "plan_of",
    "predict",
    "resume",
    "train",
]


def train(
    recipe: str | Recipe,
    request: Request | None = None,
    *,
    run: str | None = None,
    resume: bool = False,
    display: Display | None = None,
) -> Run:
    """Train a recipe in a new run; with `resume`, continue the run if it is there already."""
    asked, request, display = recipe, request or Request(), display or Silent()
    take_part(request.engine)
    injection.check()
    recipe = resolve(find_recipe(recipe) if isinstance(recipe, str) else recipe, request)
    if isinstance(asked, str) and recipe.script is not None:
        raise UserError(
            f"{asked} is the run of a script: start it with `lockstep launch {shlex.quote(recipe.script.path)}`"
        )
    directory = _directory_of(run, resume, recipe)
    if directory.exists():
        with contextlib.suppress(UserError):  # who goes on does not need the start weights any more
            recipe = selection.with_start(recipe)
        return _continue(directory, request, display, asked=recipe)
    recipe = selection.with_start(recipe)
    job = resolve_job(request, recipe, None)
    if not resume and not ENGINES[job.engine].is_elastic:
        display.note("a restart by the launcher would begin anew: with --run NAME --resume it goes on")
    plan = _new_plan(recipe, job, directory, request)
    before = deletion.Before(directory)
    try:
        rundirectory.create(directory, is_new=run is None)
    except FileExistsError:  # another command has just taken the next free name: take the one after it
        return train(asked, request, display=display)
    with directory.locked():
        with directory.writing():
            recipe, code = runcode.placed(recipe, directory.path)
            runcode.write(directory.path, code)
            plan = _placed(plan) if code else plan
            _write_description(plan, recipe)
        return _supervise(plan, display, before)


def _placed(plan: Plan) -> Plan:
    """With the code that is in the run's directory now: workers start when that of the caller may have gone."""
    recipe, _ = runcode.placed(plan.recipe, plan.directory.path)
    return replace(plan, recipe=recipe, files=owncode.directories(recipe))


def launch(
    script: str,
    arguments: Sequence[str] = (),
    request: Request | None = None,
    *,
    run: str | None = None,
    resume: bool = False,
    display: Display | None = None,
) -> Run:
    """Run a training script of the user's own on several workers; with `resume`, continue the run if it is there."""
    request = request or Request()
    take_part(request.engine)
    check_script_options(request)
    return train(scripts.describe(script, tuple(arguments)), request, run=run, resume=resume, display=display)


def check(
    recipe_name: str, request: Request, *, run: str | None, resume: bool, elsewhere: Literal["cpu", "cuda"]
) -> Plan:
    """What `train` would do on other hosts, whose devices are `elsewhere`: checked as far as this one can see, without
    a process started or a file written."""
    recipe = resolve(find_recipe(recipe_name), request, elsewhere)
    directory = _directory_of(run, resume, recipe)
    if not directory.exists():
        recipe = selection.with_start(recipe)
        return _new_plan(recipe, resolve_job(request, recipe, None), directory, request)
    recipe, stored = directory.read_config()
    recipe = with_length(recipe, request)
    check_recipe(recipe)
    return plan_of(recipe, resolve_job(request, recipe, stored), directory, None, request)


def _new_plan(recipe: Recipe, job: Job, directory: RunDirectory, request: Request) -> Plan:
    plan = plan_of(recipe, job, directory, None, request)
    if plan.dataset.overlap is not None:
        raise UserError(f"{plan.dataset.overlap}: {NOT_SHARED}")
    return plan


def _directory_of(run: str | None, resume: bool, recipe: Recipe) -> RunDirectory:
    """Where a training goes; there is a run already only if it is to be continued."""
    if resume and run is None:
        raise UserError("--resume needs the name of the run: give --run NAME, or use `lockstep resume last`")
    directory = rundirectory.for_new_run(run, recipe.name)
    if directory.exists() and not resume:
        raise UserError(
            f"the run {directory.name} exists: add --resume to continue it, or choose another name with --run"
        )
    return directory


def resume(run: str, request: Request | None = None, *, display: Display | None = None) -> Run:
    """Continue a run from its newest good checkpoint; a finished one is only evaluated."""
    take_part(request.engine if request else None)
    return _continue(rundirectory.existing(run), request or Request(), display or Silent(), asked=None)


def _continue(directory: RunDirectory, request: Request, display: Display, asked: Recipe | None) -> Run:
    injection.check()
    recipe, stored_job = directory.read_config()
    if asked is None:
        recipe = moving.with_places(recipe, request, directory.name)
    if recipe.script is not None:
        check_script_options(request)
        recipe = scripts.again(recipe, asked, display.note)
    if asked is not None:
        asked = runcode.with_names_of_same(asked, directory.path)
        for sentence in ignored(with_length(recipe, request), asked):
            display.note(sentence)
    began = recipe
    recipe = with_length(recipe, request)
    check_recipe(recipe)
    job = resolve_job(request, recipe, stored_job)
    with directory.locked():
        newest = _newest(directory, display, stored_verified(directory) if job.verify_every else None)
        new_end = request.stop_at if asked is None else asked.stop_at
        recipe = with_end(recipe, new_end, newest.step if newest else 0)
        check_recipe(recipe)
        with moving.advised(recipe.data, directory.name):
            dataset = opened(recipe)
        plan = plan_of(recipe, job, directory, newest, request, dataset)
        if (note := moving.check_same(plan, is_told=asked is None and bool(moving.asked(request)))) is not None:
            display.note(note)
        if plan.last_step < plan.first_step:
            raise UserError(
                f"{directory.name} has {plan.first_step} steps already, more than the {plan.last_step} asked for: give "
                "a greater length, or start a new run"
            )
        with directory.writing():
            _write_description(plan, recipe)
        if plan.first_step < plan.last_step and strategies.rounds(job, plan.num_steps).splits(plan.first_step):
            display.note(f"it goes on inside a round, from step {plan.first_step}: a longer run would have other bits")
        if plan.first_step < plan.last_step and (note := _new_length(plan, began)) is not None:
            display.note(note)
        if plan.first_step < plan.last_step and plan.dataset.overlap is not None:  # older versions let it begin
            display.note(plan.dataset.overlap)
        if plan.first_step < plan.last_step and stored_job.listen is not None and job.listen is None:
            display.note(f"other hosts could join before: with --listen {stored_job.listen} they can again")
        return _supervise(plan, display)


def _new_length(plan: Plan, began: Recipe) -> str | None:
    before, num_samples = length_of(scaled(began), plan.dataset), len(plan.dataset.train)
    return lengths.describe_change(plan.recipe, before, plan.num_steps, plan.first_step, num_samples)


def _write_description(plan: Plan, asked: Recipe) -> None:
    """What was asked for, last: a directory with a configuration is a run."""
    directory = plan.directory
    is_trained = plan.first_step < plan.last_step  # otherwise nothing is computed from what it is given
    if is_trained:
        record_inputs(directory, _inputs_of(plan))
    if is_trained or description.from_plain(directory.read_json("dataset.json")) is None:
        directory.write_json("dataset.json", description.to_plain(plan.dataset, plan.recipe.data))
    directory.write_config(asked, plan.job)


def _inputs_of(plan: Plan) -> Inputs:
    data, dataset = plan.recipe.data, plan.dataset
    found = {} if dataset.is_gone else dataset.fingerprints() | meanimage.fingerprint(data)
    return Inputs(plan.first_step, found, dataset.is_drawn, owncode.checksums(plan.recipe))


def _newest(directory: RunDirectory, display: Display, verified: int | None) -> checkpoint.Info | None:
    """The newest good checkpoint; where states are verified, the newest that was."""
    newest, problems = checkpoint.newest_good(directory.checkpoints, verified)
    for sentence in checkpoint.describe_damage(problems, newest is not None):
        display.note(sentence)
    if verified is not None:
        for path in directory.checkpoints.glob("step-*"):
            if path.name > checkpoint.directory_name(verified):
                display.note(f"{path.name} was not verified: the run goes on from step {newest.step if newest else 0}")
                shutil.rmtree(path, ignore_errors=True)
    return newest


def evaluate_run(
    run: str, request: Request | None = None, *, checkpoint: str | int | None = None, display: Display | None = None
) -> Run:
    """Evaluate a checkpoint of a run once: the newest good one, or the one that `checkpoint` says ("best", "last" or a
    step). Nothing in the run directory changes but logs."""
    request, display = request or Request(), display or Silent()
    if request.listen is not None:
        raise UserError("--listen is for training: an evaluation is over before a host has joined; leave it out")
    if request.profile:
        raise UserError("a profile shows where the time of a step goes, and an evaluation does no step: leave it out")
    take_part(request.engine)
    directory = rundirectory.existing(run)
    recipe, stored_job = directory.read_config()
    selection.refuse_script(recipe, directory)
    elsewhere = request.data is not None or request.eval_data is not None
    if elsewhere and request.hold_out is None:
        request = replace(request, hold_out=0)
    trained = recipe
    if request.hold_out is not None:
        recipe = resolve(recipe, request, has_begun=True)
    # Nothing is logged, so the run's loggers need not be installed here; nor need what it was trained on be at hand.
    job = resolve_job(request, recipe, replace(stored_job, loggers=(), engine="local"))
    with selection.pinned(directory, checkpoint, display) as info:
        plan = plan_of(recipe, job, directory, info, request)
        moving.check_held_out(plan, trained, is_told=request.data is not None)
        stored = description.from_plain(directory.read_json("dataset.json"))
        if stored is not None and (note := description.other_classes(plan.dataset, stored, directory.name)) is not None:
            display.note(note)
        # Figures on other data are not compared with the run's own.
        best = None if request.hold_out is not None else plan.best
        with directory.writing():  # logs are all that is written
            log = directory.log("evaluator", 0)
            log.parent.mkdir(exist_ok=True)
            log.touch()
        ended = _supervise(replace(plan, last_step=info.step, evaluate_only=True, best=best), display)
    if ended.evaluation is None:
        return ended
    figures = {key: value for key, value in ended.evaluation.items() if key != "confusion"}
    if "confusion" not in ended.evaluation or plan.dataset.num_classes is None:  # nothing is told apart
        return replace(ended, evaluation=figures)
    counted = confusion.of_counts(ended.evaluation["confusion"], plan.dataset.num_classes, plan.dataset.class_names)
    return replace(ended, evaluation=figures, confusion=counted)


def follow_run(run: str, request: Request | None = None, *, display: Display | None = None) -> list[dict[str, Any]]:
    """Evaluate the checkpoints of a run as they appear, until it is over; a row of figures for each, also those of
    earlier calls. Nothing in the run's directory changes but a file of its own."""
    request, display = request or Request(), display or Silent()
    directory = rundirectory.awaited(run, display.note)
    recipe, stored_job = directory.read_config()
    selection.refuse_script(recipe, directory)
    job = resolve_job(request, recipe, replace(stored_job, loggers=(), engine="local"))
    return follow(plan_of(recipe, job, directory, None, request), display.eval_row, display.note)


def _supervise(plan: Plan, display: Display, before: deletion.Before | None = None) -> Run:
    """`before` is what was in the directory of a new run."""
    for note in plan.dataset.notes:
        display.note(note)
    if (cost := cost_of_workers(plan.recipe, plan.job.workers)) is not None:
        display.note(cost)
    try:
        result = supervisor.run(plan, display)
    except UserError:  # no process was ever started: there is no such run
        if before is not None:
            before.restore()
        raise
    outcome = result.outcome
    if outcome.state == "failed":
        raise _failure(plan, result)
    return Run(
        directory=plan.directory.path,
        name=plan.directory.name,
        state=outcome.state,
        digest=outcome.digest,
        evaluation=result.evaluation,
        signal=outcome.cause,
        losses=result.losses,
        is_mixed=result.is_mixed,
        is_reproducible=strategies.bits(plan.job) != "none",
        steps_left=plan.num_steps - plan.last_step,
    )


def _failure(plan: Plan, result: Result) -> Exception:
    outcome = result.outcome
    if outcome.user:
        return UserError(outcome.cause)
    who = f"worker {outcome.worker}, " if outcome.worker is not None else ""
    lines = [f"the job failed: {who}{outcome.cause.rstrip()}"]
    if outcome.died and result.log is not None:
        lines += _tail(result.log)
    if result.log is not None:
        lines.append(f"its log is {result.log}")
    if checkpoint.newest_good(plan.directory.checkpoints)[0] is not None:
        lines.append(f"continue from the newest checkpoint with: lockstep resume {shlex.quote(plan.directory.name)}")
    return JobError("\n".join(lines))


def _tail(log: Path, count: int = 15) -> list[str]:
    """The last lines of a log: a process that could not say what was wrong with it may have written it there."""
    try:
        return [f"  {line}" for line in log.read_text(errors="replace").splitlines()[-count:]]
    except OSError:
        return []
