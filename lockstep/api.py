"""What the command does, as functions: everything is checked here, before any process starts.

`train`, `resume` and `evaluate` run a job on the supervisor in this process and return when it is over. They raise
UserError for what the user can mend and JobError when the job failed.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep import checkpoint, device, evaluate, models, references, rundirectory, strategies, wire
from lockstep.config import Data, Job, Recipe, check_recipe, check_workers, with_settings
from lockstep.data import EMBEDDED, check_source, open_dataset
from lockstep.data.order import steps_of_epochs
from lockstep.engines import check_engine
from lockstep.errors import JobError, UserError, unknown
from lockstep.exchange import tree
from lockstep.progress import Display, Silent
from lockstep.recipes import RECIPES
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor import run as supervisor
from lockstep.supervisor.archive import stored_verified
from lockstep.supervisor.machine import Losses


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; None means: as the recipe says."""

    data: str | None = None
    workers: int | None = None
    leaves: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    steps: int | None = None
    epochs: float | None = None
    seed: int | None = None
    threads: int | None = None
    device: str = "auto"
    strategy: str | None = None
    engine: str | None = None
    tensorboard: bool = True
    replace: bool = True
    patience: float = 10.0
    verify_every: int | None = None
    allow_mixed: bool = False
    settings: list[str] = field(default_factory=list)
    program: tuple[str, ...] = (sys.executable, "-m", "lockstep.worker")


@dataclass(frozen=True)
class Run:
    """A run that has ended: finished, or stopped with a checkpoint."""

    directory: Path
    name: str
    state: str
    """"finished" or "stopped"."""
    digest: str | None
    """Of the final weights; None if the run was stopped before there was a checkpoint."""
    evaluation: dict[str, Any] | None
    """The last evaluation: examples, top1, top5, loss, best_top1."""
    signal: str = ""
    """What stopped it."""
    losses: Losses = field(default_factory=Losses)
    """What deaths and joins on the way have cost."""
    is_mixed: bool = False
    """Whether workers with different arithmetic have taken part: then the digest promises nothing."""

    @property
    def exit_code(self) -> int:
        """As a shell expects it: 0, or 128 and the number of the signal."""
        return 0 if self.state == "finished" else 128 + signal.Signals[self.signal].value


def find_recipe(name: str) -> Recipe:
    """A built-in recipe, or the one that a user's own function returns."""
    if references.is_reference(name):
        recipe = references.load(name)()
        if not isinstance(recipe, Recipe):
            raise UserError(f"{name} returned {type(recipe).__name__}, not a lockstep.config.Recipe")
        return replace(recipe, model=models.with_absolute_name(recipe.model, references.directory(name)))
    if name not in RECIPES:
        if name.endswith(".py"):
            raise UserError(f"{name} is a file: name the function in it that returns the recipe, as {name}:my_recipe")
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]()


def _with_data(data: Data, asked: str) -> Data:
    """`--data`: the name of an embedded source, or a path for the recipe's own reader (CIFAR's for an embedded one)."""
    if asked in EMBEDDED:
        return replace(data, source=asked, path=None)
    if not Path(asked).exists():
        raise UserError(
            f"there is no {asked}: give the directory of the data with --data, or one of {', '.join(EMBEDDED)}"
        )
    return replace(data, source="cifar10" if data.source in EMBEDDED else data.source, path=str(Path(asked).resolve()))


def resolve(recipe: Recipe, request: Request) -> Recipe:
    """The recipe with everything that was asked for, checked but for its data."""
    if request.data is not None:
        recipe = replace(recipe, data=_with_data(recipe.data, request.data))
    changes: dict[str, Any] = {
        "leaves": request.leaves,
        "global_batch": request.batch_size,
        "seed": request.seed,
        "threads": request.threads,
    }
    recipe = replace(recipe, **{key: value for key, value in changes.items() if value is not None})
    if request.lr is not None:
        recipe = replace(recipe, schedule=replace(recipe.schedule, lr=request.lr))
    recipe = _with_length(recipe, request)
    recipe = with_settings(replace(recipe, device=device.choose(request.device)), request.settings)
    recipe = replace(recipe, model=models.with_absolute_name(recipe.model, Path()))
    check_recipe(recipe)
    check_source(recipe.data.source)
    models.check_model(recipe.model)
    return recipe


def _with_length(recipe: Recipe, request: Request) -> Recipe:
    if request.steps is not None and request.epochs is not None:
        raise UserError("give the length either with --steps or with --epochs, and not with both")
    if request.steps is not None:
        return replace(recipe, steps=request.steps, epochs=None)
    if request.epochs is not None:
        return replace(recipe, steps=None, epochs=request.epochs)
    return recipe


def default_workers(recipe: Recipe) -> int:
    """As many as there are GPUs, or cores for the recipe's threads, but no more than leaves."""
    there = device.count_gpus() if recipe.device == "cuda" else device.count_cores() // recipe.threads
    return max(1, min(recipe.leaves, there))


def _job(request: Request, recipe: Recipe, stored: Job | None) -> Job:
    workers = request.workers or (stored.workers if stored else default_workers(recipe))
    job = Job(
        workers=workers if request.workers is None else request.workers,
        strategy=request.strategy or (stored.strategy if stored else "allreduce"),
        engine=request.engine or (stored.engine if stored else "local"),
        tensorboard=request.tensorboard,
        replace=request.replace,
        patience=request.patience,
        verify_every=_first_given(request.verify_every, stored.verify_every if stored else None, 0),
        allow_mixed=request.allow_mixed,
    )
    if job.verify_every < 0:
        raise UserError(f"--verify-every takes a number of steps, or 0 for never, not {job.verify_every}")
    check_workers(recipe, job.workers)
    strategies.check_strategy(job.strategy)
    check_engine(job.engine)
    return job


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def cost_of_workers(recipe: Recipe, workers: int) -> str | None:
    """What a number of workers that does not divide the leaves costs, in words."""
    effective = tree.effective_members(recipe.leaves, workers)
    if effective == workers:
        return None
    return f"{workers} workers share {recipe.leaves} leaves: as fast as {effective}"


def train(
    recipe_name: str,
    request: Request | None = None,
    *,
    run: str | None = None,
    resume: bool = False,
    display: Display | None = None,
) -> Run:
    """Train a recipe in a new run; with `resume`, continue the run if it is there already."""
    request, display = request or Request(), display or Silent()
    if resume and run is None:
        raise UserError("--resume needs the name of the run: give --run NAME, or use `lockstep resume last`")
    recipe = resolve(find_recipe(recipe_name), request)
    directory = rundirectory.for_new_run(run, recipe.name)
    if directory.exists():
        if not resume:
            raise UserError(
                f"the run {directory.name} exists: add --resume to continue it, or choose another name with --run"
            )
        return _continue(directory, request, display, asked=recipe)
    job = _job(request, recipe, None)
    plan = _plan(recipe, job, directory, None, request)
    try:
        rundirectory.create(directory, is_new=run is None)
    except FileExistsError:  # another command has just taken the next free name: take the one after it
        return train(recipe_name, request, display=display)
    with directory.locked():
        try:
            directory.write_config(recipe, job)
        except OSError as error:
            raise UserError(
                f"cannot write to {directory.path} ({error.strerror}): choose another place with --run"
            ) from None
        return _supervise(plan, display)


def resume(run: str, request: Request | None = None, *, display: Display | None = None) -> Run:
    """Continue a run from its newest good checkpoint; a finished one is only evaluated."""
    return _continue(rundirectory.existing(run), request or Request(), display or Silent(), asked=None)


def _continue(directory: RunDirectory, request: Request, display: Display, asked: Recipe | None) -> Run:
    recipe, stored_job = directory.read_config()
    if asked is not None:
        for sentence in _ignored(_with_length(recipe, request), asked):
            display.note(sentence)
    recipe = _with_length(recipe, request)
    check_recipe(recipe)
    job = _job(request, recipe, stored_job)
    with directory.locked():
        newest = _newest(directory, display, stored_verified(directory) if job.verify_every else None)
        plan = _plan(recipe, job, directory, newest, request)
        if plan.num_steps < plan.first_step:
            raise UserError(
                f"{directory.name} has {plan.first_step} steps already, more than the {plan.num_steps} asked for: give "
                "a greater length, or start a new run"
            )
        directory.write_config(recipe, job)
        return _supervise(plan, display)


def _ignored(stored: Recipe, asked: Recipe) -> list[str]:
    """The stored configuration wins on resume; say so where the command says something else."""

    def flat(value: Any, prefix: str = "") -> dict[str, Any]:
        if not isinstance(value, dict):
            return {prefix[:-1]: value}
        return {key: leaf for name, inner in value.items() for key, leaf in flat(inner, f"{prefix}{name}.").items()}

    old, new = flat(dataclasses.asdict(stored)), flat(dataclasses.asdict(asked))
    return [
        f"the stored configuration wins: {key} stays {old[key]!r}, {new[key]!r} is ignored"
        for key in old
        if key in new and old[key] != new[key] and key not in ("steps", "epochs")
    ]


def _newest(directory: RunDirectory, display: Display, verified: int | None) -> checkpoint.Info | None:
    """The newest good checkpoint; where states are verified, the newest that was."""
    newest, problems = checkpoint.newest_good(directory.checkpoints, verified)
    _warn_of(problems, display)
    if verified is not None:
        for path in directory.checkpoints.glob("step-*"):
            if path.name > checkpoint.directory_name(verified):
                display.note(f"{path.name} was not verified: the run goes on from step {newest.step if newest else 0}")
                shutil.rmtree(path, ignore_errors=True)
    return newest


def _warn_of(problems: list[str], display: Display) -> None:
    for problem in problems:
        display.note(f"warning: {problem}; an older checkpoint is used")


def evaluate_run(run: str, request: Request | None = None, *, display: Display | None = None) -> Run:
    """Evaluate the newest good checkpoint of a run once; nothing in the run directory changes but logs."""
    request, display = request or Request(), display or Silent()
    directory = rundirectory.existing(run)
    recipe, stored_job = directory.read_config()
    if request.data is not None:
        recipe = resolve(recipe, request)
    with checkpoint.pinned_newest(directory.checkpoints) as (newest, problems):
        _warn_of(problems, display)
        if newest is None:
            raise UserError(
                f"{directory.name} has no checkpoint yet: train it first with `lockstep resume {directory.name}`"
            )
        plan = _plan(recipe, _job(request, recipe, stored_job), directory, newest, request)
        # Figures on other data are not compared with the run's own.
        best = None if request.data is not None else plan.best
        return _supervise(replace(plan, num_steps=newest.step, evaluate_only=True, best=best), display)


def _plan(
    recipe: Recipe, job: Job, directory: RunDirectory, newest: checkpoint.Info | None, request: Request
) -> supervisor.Plan:
    """Open the data, which checks it, and work out the length."""
    dataset = open_dataset(recipe.data, recipe.seed)
    num_steps = recipe.steps
    if num_steps is None:
        assert recipe.epochs is not None
        num_steps = steps_of_epochs(recipe.epochs, len(dataset.train), recipe.global_batch)
    return supervisor.Plan(
        recipe=recipe,
        job=job,
        directory=directory,
        num_steps=num_steps,
        num_evaluation_leaves=evaluate.num_leaves(len(dataset.test), recipe.evaluation),
        checkpoint=newest,
        best=_best(directory, newest),
        program=request.program,
    )


def _best(directory: RunDirectory, newest: checkpoint.Info | None) -> dict[str, Any] | None:
    """The best evaluation so far, from best.json or, if that is lost, from the checkpoint."""
    stored = directory.read_json("best.json")
    known = [one for one in (stored, newest.best if newest else None) if isinstance(one, dict) and "top1" in one]
    best = max(known, key=lambda one: float(one["top1"]), default=None)
    return None if best is None else {"top1": best["top1"], "step": best["step"]}


def _supervise(plan: supervisor.Plan, display: Display) -> Run:
    if (cost := cost_of_workers(plan.recipe, plan.job.workers)) is not None:
        display.note(cost)
    result = supervisor.run(plan, display)
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
    )


def _failure(plan: supervisor.Plan, result: supervisor.Result) -> Exception:
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
        lines.append(f"continue from the newest checkpoint with: lockstep resume {plan.directory.name}")
    return JobError("\n".join(lines))


def _tail(log: Path, count: int = 15) -> list[str]:
    """The last lines of a log: a process that could not say what was wrong with it may have written it there."""
    try:
        return [f"  {line}" for line in log.read_text(errors="replace").splitlines()[-count:]]
    except OSError:
        return []


def command(run: str, message: dict[str, Any]) -> RunDirectory:
    """Send a command to the supervisor of a running job."""
    directory = rundirectory.existing(run)
    document = directory.read_json("supervisor.json")
    try:
        host, _, port = document["address"].rpartition(":")  # type: ignore[index]
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            hello = {"type": "hello", "version": wire.PROTOCOL_VERSION, "token": document["token"]}  # type: ignore[index]
            connection.sendall(wire.encode({**hello, "command": message}))
            answer = wire.receive_frame(connection)
    except (TypeError, KeyError, ValueError, AttributeError, OSError):
        answer = None
    if answer is None:
        raise UserError(f"{directory.name} is not running: continue it with `lockstep resume {directory.name}`")
    if answer["type"] != "ok":
        raise UserError(str(answer.get("sentence")))
    return directory


def find_checkpoint(target: str) -> checkpoint.Info:
    """The checkpoint that a run, or the directory of a checkpoint, means."""
    path = Path(target)
    try:
        if (path / "checkpoint.json").is_file():
            return checkpoint.verify(path)
        directory = rundirectory.existing(target)
        newest, problems = checkpoint.newest_good(directory.checkpoints)
    except checkpoint.Damaged as damage:
        raise UserError(f"{damage}: use another checkpoint") from None
    if newest is None:
        what = problems[0] if problems else f"{directory.name} has no checkpoint yet"
        raise UserError(f"{what}: train it with `lockstep resume {directory.name}`")
    return newest
