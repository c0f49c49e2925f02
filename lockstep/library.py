"""The Python face of `lockstep train` and `lockstep resume`, with the options of the command as keyword arguments.

`lockstep/__init__.py` imports this when one of its names is used, so that `import lockstep` costs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lockstep import api, notebook, objects, spelling
from lockstep import progress as displays
from lockstep.choices import refuse_unknown_names
from lockstep.config import Recipe
from lockstep.errors import UserError, unknown
from lockstep.rank import take_part
from lockstep.request import Request
from lockstep.result import Run

if TYPE_CHECKING:
    from torch import Tensor, nn


_OF_WORKERS = (
    *("workers", "engine", "address", "placement", "cpus_per_worker", "listen", "min_workers", "replace", "patience"),
    *("allow_mixed", "tensorboard"),
)
_OF_TRAINING = (
    *("steps", "epochs", "stop_at", "strategy", "servers", "backup", "late", "wait_for", "local_steps", "outer"),
    *("max_staleness", "verify_every", "evaluator", "loggers", "histograms_every", "profile"),
)
_PLACES = ("data", "eval_data", "label_path", "eval_label_path", "endpoint_url", "anonymous")
OF_RESUME = frozenset((*_OF_WORKERS, *_OF_TRAINING, *_PLACES))
"""What `lockstep resume` takes of a request."""
OF_EVALUATE = frozenset((*_OF_WORKERS, *_PLACES, "key_prefix", "hold_out", "device"))
"""And an evaluation, where other data may be like none that the run has seen."""


def train(
    recipe: str | Recipe,
    *,
    workers: int | None = None,
    strategy: str | None = None,
    engine: str | None = None,
    data: str | Path | Callable[..., Any] | None = None,
    model: str | Callable[..., nn.Module] | None = None,
    loss: str | Callable[..., Tensor] | None = None,
    metric: str | Callable[..., Any] | None = None,
    run: str | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a recipe, and return when it is over: `lockstep train RECIPE` with the same options, such as `steps=100`,
    `lr=0.1`, `init="weights.pt"` or `settings={"schedule.name": "cosine"}` for `--set`.

    `model` may be a function or a class, and `data`, `loss` and `metric` functions, also those of the running script or
    notebook: their source, and what it uses, is written to the run's directory, from where workers import it. They do
    not import the caller's script, so it needs no `if __name__ == "__main__"`. The function of `data` returns the
    training and the test set, each a torch `Dataset`, a pair of arrays, a folder of images, or anything with a length
    and an index.

    Raises UserError for what the caller can mend, and JobError when the job failed. Ctrl-C, or the interrupt of a
    notebook's cell, ends the run with a checkpoint, and the run that is returned is "stopped"; a second one ends it at
    once. In a thread other than the main one there are no signals: `lockstep stop RUN` does the same.

    >>> import lockstep
    >>> few = {"log_every": 1, "evaluation.max_leaves": 1}
    >>> run = lockstep.train("demo", workers=2, steps=2, run="first", settings=few, progress=False)
    >>> run.state, run.metrics["step"]
    ('finished', [1, 2])
    >>> lockstep.train("demo", worker=2)
    Traceback (most recent call last):
    lockstep.errors.UserError: unknown option 'worker': did you mean 'workers'?
    """
    if not isinstance(recipe, str | Recipe):
        raise UserError(f"recipe takes a name or a lockstep.Recipe, not {type(recipe).__name__}")
    if not isinstance(run, str | None):
        raise UserError(f"run takes a name or a directory as text, not {type(run).__name__}")
    things = {"data": data, "model": model, "loss": loss, "metric": metric}
    with contextlib.ExitStack() as stack:
        stack.enter_context(spelling.respelling())
        if any(callable(thing) for thing in things.values()):
            take_part(engine)  # a rank that becomes a worker does not come back to tidy up
        names = {kind: stack.enter_context(objects.named(kind, thing)) for kind, thing in things.items()}
        given = {"workers": workers, "strategy": strategy, "engine": engine, **names, **options}
        return api.train(recipe, request_of(given, settings), run=run, resume=resume, display=_display(progress))


def resume(
    run: str | Path | Run,
    *,
    workers: int | None = None,
    data: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Continue a run from its newest good checkpoint: `lockstep resume RUN` with the same options. It is given by its
    name or path, as "last", or as the `Run` itself.

    The number of workers may be another one, and `data` says where the run's data lie now, if they have moved. Here the
    run of the example of `train` becomes longer:

    >>> import lockstep
    >>> run = lockstep.resume("first", steps=3, workers=1, progress=False)
    >>> run.metrics["step"]
    [1, 2, 3]
    """
    with spelling.respelling():
        place = str(data) if isinstance(data, Path) else data
        given = {"workers": workers, "data": place, **options}
        refuse_others(given, OF_RESUME, "is decided when a run begins, and stays: leave it out, or start a new run")
        return api.resume(name_of(run), request_of(given, None), display=_display(progress))


def name_of(run: str | Path | Run) -> str:
    """As commands take it; with a slash at its end a path is no name."""
    if isinstance(run, str):
        return run
    if not isinstance(run, Path | Run):
        raise UserError(f"a run is given by its name or path, or as a lockstep.Run, not as {type(run).__name__}")
    return f"{run.directory if isinstance(run, Run) else run}/"


def refuse_others(given: Mapping[str, Any], taken: Collection[str], why: str) -> None:
    """Refuse options of `train` that are not among those `taken` here, and would do nothing."""
    for name, value in given.items():
        if name in taken or value is None:
            continue
        if name not in {field.name for field in dataclasses.fields(Request)}:
            raise unknown("option", name, taken)
        raise UserError(f"{name} {why}")


def request_of(given: Mapping[str, Any], settings: Mapping[str, Any] | None) -> Request:
    """What was asked for, by the names of the command's options."""
    known = {field.name for field in dataclasses.fields(Request)} - {"settings", "program"}
    for name in given:
        if name not in known:
            raise unknown("option", name, known)
    refuse_unknown_names(given, Request, "")
    try:
        msgspec.convert(dict(given), Request)
    except msgspec.ValidationError as error:
        raise UserError(f"an option has another type: {error}".replace("$.", "")) from None
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"settings takes a dict of keys and values, not {type(settings).__name__}")
    return Request(**given, settings=[f"{key}={_json(key, value)}" for key, value in (settings or {}).items()])


def _json(key: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise UserError(
            f"settings takes plain values, and {key} is a {type(value).__name__}: model, data, loss and metric take "
            "functions, as arguments of train"
        ) from None


def _display(progress: bool) -> displays.Display:
    in_notebook = progress and notebook.is_here()
    return spelling.Respelling(notebook.Notebook() if in_notebook else displays.display(quiet=not progress))
