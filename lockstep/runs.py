"""What has been trained, as plain data: the commands `evaluate`, `predict`, `export`, `compare`, `diff` and `runs`.

A run is given as the commands take it (a name, a path, `last`), as a path, or as the `Run` that `lockstep.train` has
returned. Nothing is printed, and what comes back is what a command says with `--json`. Mistakes are UserErrors.

In the examples there is one run, that of the examples of `lockstep.train` and `lockstep.resume`:

>>> from lockstep import runs
>>> [(one["name"], one["state"], one["step"]) for one in runs.summaries()]
[('first', 'finished', 3)]
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import api, differences, objects, rundirectory, spelling
from lockstep import export as files
from lockstep.errors import JobError
from lockstep.library import OF_EVALUATE, name_of, refuse_others, request_of
from lockstep.progress import Silent
from lockstep.report import comparison, confusion, predictions
from lockstep.report import runs as report
from lockstep.result import Run

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["compare", "diff", "evaluate", "export", "predict", "summaries"]


def summaries() -> list[dict[str, Any]]:
    """All runs below `runs/`, the one that was started or resumed last at the end: name, recipe, state, step, workers,
    top1, best, images_per_second, deaths, digest and more. A run that cannot be read is left out, with a warning.

    >>> sorted(runs.summaries()[0])[:4]
    ['best', 'best_top1', 'changed', 'corruptions']
    """
    found, problems = report.summarize_all()
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return [dataclasses.asdict(one) for one in found]


def evaluate(
    run: str | Path | Run,
    *,
    checkpoint: str | int | None = None,
    workers: int | None = None,
    data: str | Path | Callable[..., Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a checkpoint once, exactly: `lockstep evaluate RUN` with the same options. `checkpoint` is "best",
    "last" or a step; `data` other data of the same kind, or a function that returns them.

    The figures are `examples`, `loss`, and `top1`, `top5` or the recipe's metric; where there are classes, also
    `classes`, the figures of each, and `confusion`, a list of [class, first guess, how often].

    >>> found = runs.evaluate("first", workers=1)
    >>> found["top1"] == run.evaluation["top1"], sum(often for *_, often in found["confusion"]) == found["examples"]
    (True, True)
    """
    display = spelling.Respelling(Silent())
    with spelling.respelling(), objects.named("data", data) as source:
        given = {"workers": workers, "data": source, **options}
        refuse_others(given, OF_EVALUATE, "is no option of an evaluation: leave it out")
        ended = api.evaluate_run(name_of(run), request_of(given, None), checkpoint=checkpoint, display=display)
    if ended.evaluation is None:
        raise JobError(f"the evaluation was stopped by {ended.signal}")
    return figures(ended)


def figures(evaluated: Run) -> dict[str, Any]:
    """What an evaluation has found, for here and for `lockstep evaluate --json`."""
    classes = confusion.to_plain(evaluated.confusion) if evaluated.confusion is not None else {}
    found = {key: value for key, value in (evaluated.evaluation or {}).items() if key != "kind"}
    return {"run": evaluated.name, "digest": evaluated.digest, **found, **classes}


def predict(
    run: str | Path | Run,
    images: str | Path | Sequence[str | Path | Image.Image],
    *,
    top: int = 5,
    checkpoint: str | int | None = None,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """What is in pictures, files or Pillow images: for each one, in their order, `guesses` with name, number and
    probability, the best first; or the `problem` of a file that cannot be read.

    >>> from PIL import Image
    >>> (found,) = runs.predict("first", [Image.new("RGB", (32, 32))], top=2)
    >>> [sorted(guess) for guess in found["guesses"]]
    [['name', 'number', 'probability'], ['name', 'number', 'probability']]
    """
    every = [images] if isinstance(images, str | Path) else images
    with spelling.respelling():
        found = api.predict(name_of(run), every, top=top, checkpoint=checkpoint, device=device)
    return [predictions.to_plain(one) for one in found]


def export(
    run: str | Path | Run, to: str, *, out: str | Path | None = None, checkpoint: str | int | None = None
) -> Path:
    """Write the trained model to a file for others, "torch", "safetensors" or "onnx", and say where it is: at `out`, or
    under the run's name here.

    >>> runs.export("first", "safetensors").name
    'first.safetensors'
    """
    with spelling.respelling():
        return files.export(name_of(run), to, out=out, checkpoint=checkpoint)


def compare(*runs: str | Path | Run, top1: float | None = None) -> list[dict[str, Any]]:
    """Runs next to each other, a line for each: workers, speed, speed-up next to one worker, accuracy, and the time to
    the accuracy `top1`, or to the highest whole percentage that all have reached.

    >>> [(one["run"], one["workers"], one["mean_workers"]) for one in runs.compare("first")]  # 2 workers, then 1
    [('first', 1, 1.6666666666666667)]
    """
    with spelling.respelling():
        directories = [rundirectory.existing(name_of(run)) for run in runs]
        once = {directory.path.resolve(): directory for directory in directories}.values()
        return comparison.to_plain(*comparison.compare([comparison.load(directory) for directory in once], top1))


def diff(first: str | Path | Run, second: str | Path | Run, *, recorded: bool = False) -> dict[str, Any]:
    """Where two runs part, and why: `known` is what their recorded digests say (`compared`, `agreed`, `parted`: steps,
    or None), `found` what came out of doing the steps in question again, unless only what was `recorded` counts, and
    `causes` everything that differs and could be the reason.

    >>> runs.diff("first", "first")["known"]["parted"] is None
    True
    """
    with spelling.respelling():
        return differences.to_plain(differences.diff(name_of(first), name_of(second), again=not recorded))
