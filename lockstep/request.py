"""What a user asks for, and the recipe and the job that it resolves to, checked but for the data."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from lockstep import (
    addresses,
    device,
    engines,
    environment,
    host,
    loggers,
    models,
    owncode,
    recipefile,
    references,
    strategies,
    takers,
)
from lockstep.check import check_new, check_recipe, check_workers
from lockstep.config import Data, Job, Model, Recipe
from lockstep.data import EMBEDDED, check_source, keys, own, paths
from lockstep.data.storage import is_url
from lockstep.errors import UserError, nearest, unknown
from lockstep.exchange import tree
from lockstep.recipes import RECIPES
from lockstep.settings import with_settings


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; None means: as the recipe says."""

    data: str | None = None
    eval_data: str | None = None
    label_path: str | None = None
    eval_label_path: str | None = None
    key_prefix: str | None = None
    endpoint_url: str | None = None
    anonymous: bool | None = None
    hold_out: int | None = None
    model: str | None = None
    loss: str | None = None
    metric: str | None = None
    init: str | None = None
    workers: int | None = None
    leaves: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    steps: int | None = None
    epochs: float | None = None
    stop_at: int | None = None
    scale: float | None = None
    precision: Literal["fp32", "bf16", "tf32"] | None = None
    compile: bool | None = None
    channels_last: bool | None = None
    seed: int | None = None
    threads: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    strategy: str | None = None
    servers: int | None = None
    backup: int | None = None
    late: Literal["wait", "drop"] | None = None
    wait_for: int | None = None
    local_steps: int | None = None
    outer: Literal["none", "nesterov"] | None = None
    max_staleness: int | None = None
    engine: str | None = None
    address: str | None = None
    placement: Literal["any", "spread", "pack"] | None = None
    cpus_per_worker: int | None = None
    listen: str | None = None
    min_workers: int | None = None
    evaluator: Literal["none", "own", "shared"] | None = None
    tensorboard: bool | None = None
    loggers: list[str] | None = None
    histograms_every: int | None = None
    profile: bool = False
    replace: bool = True
    patience: float = 10.0
    verify_every: int | None = None
    allow_mixed: bool = False
    settings: list[str] = field(default_factory=list)
    program: tuple[str, ...] = (sys.executable, "-m", "lockstep.worker")


def find_recipe(name: str, above: tuple[Path, ...] = ()) -> Recipe:
    """A built-in recipe, the one that `file.py:function` returns, or the one in a file or in the directory of a run.

    `above` are the files whose `base` has led here.
    """
    if name in RECIPES:
        return RECIPES[name]()
    if references.is_reference(name):
        recipe = references.call(name)
        if not isinstance(recipe, Recipe):
            raise UserError(f"{name} returned {type(recipe).__name__}, not a lockstep.config.Recipe")
        return owncode.with_absolute_names(recipe, references.directory(name))
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the function in it that returns the recipe, as {name}:my_recipe")
    if recipefile.is_file(name):
        return recipefile.load(name, find_recipe, above)
    raise unknown("recipe", name, RECIPES)


def _with_data(data: Data, asked: str) -> Data:
    """`--data`: the name of an embedded source, a function of the user's own, or a path for the recipe's own reader
    (CIFAR-10's for an embedded one).

    The test set comes from there too, unless `--eval-data` says otherwise.
    """
    if asked in EMBEDDED:
        hold_out = 0 if data.source == "imagenet" else data.hold_out
        return replace(data, source=asked, path=None, eval_path=None, hold_out=hold_out)
    if not is_url(asked) and references.is_reference(asked) and not Path(asked).exists():
        return replace(data, source=asked, path=None, eval_path=None)
    if asked.endswith(".py"):
        raise UserError(f"{asked} is Python code: name the function in it that returns the data, as {asked}:function")
    _check_own(data, "path", "--data")
    if not is_url(asked) and data.source != "imagenet":
        close = nearest(asked, EMBEDDED, cutoff=0.7)
        hint = f"did you mean {close!r}? " if close is not None else ""
        _check_path(asked, f"{hint}give the directory of the data with --data, or one of {', '.join(EMBEDDED)}")
    return replace(data, source="cifar10" if data.source in EMBEDDED else data.source, path=asked, eval_path=None)


def _check_own(data: Data, key: str, option: str) -> None:
    """Data of the user's own lie where their function says, unless it wants to be told."""
    if references.is_reference(data.source) and not own.takes(data.source, key):
        raise UserError(
            f"{data.source} has no parameter `{key}`, which would get what {option} says: give it one, or name another "
            "function with --data, as file.py:function"
        )


def _check_path(asked: str, advice: str) -> None:
    try:
        paths.expand(asked)
    except UserError as error:
        raise UserError(f"{error}: {advice}") from None


def with_data(data: Data, request: Request) -> Data:
    """Everything that was asked of the data."""
    if request.data is not None:
        data = _with_data(data, request.data)
    if request.eval_data is not None:
        _check_own(data, "eval_path", "--eval-data")
        if not is_url(request.eval_data) and data.source != "imagenet":
            _check_path(request.eval_data, "give the directory or the files of the test set with --eval-data")
        data = replace(data, eval_path=request.eval_data)
        if data.source == "imagenet":  # the recipe holds out samples where there is no test set
            data = replace(data, hold_out=0)
    names = ("label_path", "eval_label_path", "key_prefix", "endpoint_url", "anonymous", "hold_out")
    given = {name: value for name in names if (value := getattr(request, name)) is not None}
    return replace(data, **given)


def asked_of_data(request: Request) -> set[str]:
    """The keys of `data` that an option names which means nothing to some sources, or `--set`."""
    options = {key for key in keys.OPTIONS if getattr(request, key) is not None}
    return options | {name.removeprefix("data.") for name in names_of_settings(request) if name.startswith("data.")}


def names_of_settings(request: Request) -> list[str]:
    return [setting.partition("=")[0].strip() for setting in request.settings]


def _with_absolute_paths(recipe: Recipe) -> Recipe:
    """A run is resumed from any working directory."""
    data = recipe.data
    names = ("path", "eval_path", "label_path", "eval_label_path", "mean_image")
    found: dict[str, Any] = {name: paths.absolute(path) for name in names if (path := getattr(data, name)) is not None}
    return replace(recipe, data=replace(data, **found))


def resolve(
    recipe: Recipe, request: Request, elsewhere: Literal["cpu", "cuda"] | None = None, *, has_begun: bool = False
) -> Recipe:
    """The recipe with everything that was asked for, checked but for its data.

    `elsewhere` says what "auto" means on another host, where the training will be; the devices of this one then do not
    count. A run that `has_begun` keeps its schedule, whatever it is.
    """
    before = recipe.data
    recipe = replace(recipe, data=with_data(before, request))
    changes: dict[str, Any] = {
        "loss": request.loss,
        "metric": request.metric,
        "leaves": request.leaves,
        "global_batch": request.batch_size,
        "seed": request.seed,
        "threads": request.threads,
        "scale": request.scale,
        "stop_at": request.stop_at,
        "precision": request.precision,
        "compile": request.compile,
        "channels_last": request.channels_last,
    }
    recipe = replace(recipe, **{key: value for key, value in changes.items() if value is not None})
    if request.model is not None:
        recipe = replace(recipe, model=with_model(recipe.model, request.model))
    if request.init is not None:
        recipe = replace(recipe, init=request.init, init_sha256=None)
    if request.lr is not None:
        recipe = replace(recipe, schedule=replace(recipe.schedule, lr=request.lr))
    recipe = with_length(recipe, request)
    recipe = with_settings(recipe, request.settings)
    asked = {key for key, value in vars(recipe.data).items() if value != getattr(before, key)}
    wanted = recipe.device if request.device == "auto" else request.device
    if elsewhere is None:
        is_elsewhere = request.engine in engines.ENGINES and engines.ENGINES[request.engine].is_elsewhere
        recipe = replace(recipe, device="cuda" if wanted == "cuda" and is_elsewhere else device.choose(wanted))
    else:
        recipe = replace(recipe, device=elsewhere if wanted == "auto" else wanted)
    if recipe.script is not None:
        check_recipe(recipe)
        return recipe
    recipe = _with_absolute_paths(owncode.with_absolute_names(recipe, Path()))
    check_recipe(recipe)
    if not has_begun:
        check_new(recipe)
    check_source(recipe.data.source)
    keys.check_asked(recipe.data, asked)
    takers.check_asked(recipe, names_of_settings(request))
    models.check_model(recipe.model)
    owncode.check_functions(recipe)
    return recipe


SCRIPT_SETTINGS = ("checkpoints.", "log_every=")
"""What of a recipe a script does not decide."""
SCRIPT_ENGINES = ("local",)


def check_script_options(request: Request) -> None:
    """Refuse what means nothing, or cannot be had, where a script has the loop."""
    if request.strategy is not None and strategies.STRATEGIES.get(request.strategy, _COMMON).bits != "common":
        raise UserError(f"a script exchanges gradients in every step, which --strategy {request.strategy} does not")
    if request.engine is not None and request.engine not in SCRIPT_ENGINES:
        raise UserError(f"--engine {request.engine} cannot run a script yet: leave it out")
    if request.listen is not None:
        raise UserError("--listen cannot invite hosts to run a script yet: leave it out")
    if request.verify_every:
        raise UserError("--verify-every computes leaves a second time, which only a script can: leave it out")
    if request.evaluator is not None:
        raise UserError("a script evaluates by itself (job.evaluate), so there is nothing to do for an --evaluator")
    if request.histograms_every:
        raise UserError("a script shows no histograms of its model, so --histograms-every does nothing: leave it out")
    if request.steps is not None or request.epochs is not None:
        raise UserError("the length of a script's training is in the script: change it in job.batches")
    for setting in request.settings:
        if not setting.strip().startswith(SCRIPT_SETTINGS):
            raise UserError(f"the script decides what --set {setting} says: only checkpoints.* and log_every are left")


_COMMON = strategies.STRATEGIES["allreduce"]


def with_model(model: Model, asked: str) -> Model:
    """`--model`: the options of the recipe's model mean nothing to another one."""
    return model if asked == model.name else Model(name=asked)


def with_length(recipe: Recipe, request: Request) -> Recipe:
    if request.steps is not None and request.epochs is not None:
        raise UserError("give the length either with --steps or with --epochs, and not with both")
    if request.steps is not None:
        return replace(recipe, steps=request.steps, epochs=None)
    if request.epochs is not None:
        return replace(recipe, steps=None, epochs=request.epochs)
    return recipe


def with_end(recipe: Recipe, asked: int | None, done: int) -> Recipe:
    """Where a run that is continued ends: as is asked for now, or where it was to end, unless it has been there."""
    if asked is None and recipe.stop_at is not None and done < recipe.stop_at:
        asked = recipe.stop_at
    return replace(recipe, stop_at=asked)


def default_workers(recipe: Recipe) -> int:
    """As many as there are GPUs, or cores for the recipe's threads, but no more than leaves."""
    there = device.count_gpus() if recipe.device == "cuda" else host.count_cores() // recipe.threads
    return max(1, min(recipe.leaves, there))


def resolve_job(request: Request, recipe: Recipe, stored: Job | None) -> Job:
    strategy = request.strategy or (stored.strategy if stored else "allreduce")
    of_strategy, of_engine = strategy_options(request, strategy, stored), engine_options(request, stored)
    job = Job(
        workers=_workers(request, recipe, stored, of_engine["engine"], of_strategy.get("servers", 0)),
        strategy=strategy,
        **of_strategy,
        **of_engine,
        min_workers=_first_given(request.min_workers, stored.min_workers if stored else None, 0),
        evaluator=request.evaluator or (stored.evaluator if stored else "none"),
        **loggers.choose(request.tensorboard, request.loggers, stored),
        histograms_every=_first_given(request.histograms_every, stored.histograms_every if stored else None, 0),
        profile=request.profile,
        replace=request.replace,
        patience=request.patience,
        verify_every=_first_given(request.verify_every, stored.verify_every if stored else None, 0),
        allow_mixed=request.allow_mixed,
    )
    if not 0 < job.patience < math.inf:
        raise UserError(f"--patience takes a positive number of seconds, not {job.patience:g}")
    if job.verify_every < 0:
        raise UserError(f"--verify-every takes a number of steps, or 0 for never, not {job.verify_every}")
    loggers.check_loggers(loggers.names_of(job))
    loggers.check_histograms(job, request.histograms_every)
    check_workers(recipe, job.workers, least=0 if job.listen else 1)
    check_strategy_options(job, recipe)
    if stored is not None:
        strategies.check_same_bits(job, stored)
    most, of_what = (recipe.leaves, "--leaves") if job.listen else (job.workers, "--workers")
    if request.min_workers is None:  # what was asked for when the run began counts as far as it can
        job = replace(job, min_workers=min(job.min_workers, most))
    if not 0 <= job.min_workers <= most:
        raise UserError(f"--min-workers takes 1 to {most}, the number of {of_what}, not {job.min_workers}")
    return job


def _workers(request: Request, recipe: Recipe, stored: Job | None, engine: str, servers: int) -> int:
    """As many as was asked for; where a launcher has started them, as many as there are."""
    if engine == "env":
        return environment.count_workers(environment.place(os.environ), servers, request.workers)
    # None of its own is what a run can only have that listens for hosts.
    before = stored.workers if stored and (stored.workers or request.listen is not None) else None
    return _first_given(request.workers, before, default_workers(recipe))


def engine_options(request: Request, stored: Job | None) -> dict[str, Any]:
    """The engine, and what was asked of it now or when the run began."""
    before = engines.ENGINES.get(stored.engine) if stored else None
    engine = request.engine or (stored.engine if stored and (before is None or before.is_kept) else "local")
    given = {name: value for name in engines.OPTIONS if (value := getattr(request, name)) is not None}
    engines.check_engine(engine, given)
    if given.get("cpus_per_worker", 1) < 1:
        raise UserError(f"--cpus-per-worker takes a number of at least 1, not {given['cpus_per_worker']}")
    if "listen" in given:
        addresses.to_listen(given["listen"])
    kept = engines.ENGINES[engine].options - {"listen"} if stored is not None and stored.engine == engine else ()
    return {"engine": engine, **{name: getattr(stored, name) for name in kept}, **given}


def strategy_options(request: Request, strategy: str, stored: Job | None) -> dict[str, Any]:
    """What was asked of the strategy now, or when the run began, or what is usual for it."""
    strategies.check_strategy(strategy)
    if (request.late == "drop") != (request.wait_for is not None):
        raise UserError(
            "--late drop and --wait-for K belong together: a step is done with K leaves, and drops the rest"
        )
    given = {name: value for name in strategies.OPTIONS if (value := getattr(request, name)) is not None}
    strategies.check_options(strategy, set(given))
    entry = strategies.STRATEGIES[strategy]
    before = {} if stored is None or stored.strategy != strategy else {o: getattr(stored, o) for o in entry.options}
    return {**({"servers": entry.servers} if entry.servers else {}), **before, **given}


def check_strategy_options(job: Job, recipe: Recipe) -> None:
    """The numbers of a strategy."""
    least_of = {"servers": min(1, strategies.STRATEGIES[job.strategy].servers), "local_steps": 1}
    for name, flag in strategies.OPTIONS.items():
        number, least = getattr(job, name), least_of.get(name, 0)
        if isinstance(number, int) and number < least:
            raise UserError(f"{flag} takes a number of at least {least}, not {number}")
    if job.verify_every and strategies.bits(job) == "none":
        asked = "--late drop" if job.wait_for else f"--strategy {job.strategy}"
        raise UserError(f"--verify-every compares bits, and with {asked} no two runs have the same: leave it out")
    if job.wait_for > recipe.leaves:
        raise UserError(f"a step has {recipe.leaves} leaves, so --wait-for takes 1 to {recipe.leaves}")


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def cost_of_workers(recipe: Recipe, workers: int) -> str | None:
    """What a number of workers that does not divide the leaves costs, in words."""
    if workers == 0:
        return "no worker runs here: training begins when a host joins"
    effective = tree.effective_members(recipe.leaves, workers)
    if effective == workers:
        return None
    return f"{workers} workers share {recipe.leaves} leaves: as fast as {effective}"
