"""Lockstep trains image classifiers on any number of workers, and the result does not depend on how many there are.

`lockstep.train(...)` is the command `lockstep train` in Python, `lockstep.runs` has what the commands say about runs,
`lockstep.job(...)` makes a training loop of your own one for any number of workers, and `lockstep.weights` has weights
as plain data. This package imports nothing heavy before one of its names is used.

The public names are those in `__all__` here, in `lockstep.config`, in `lockstep.runs` and in `lockstep.weights`.
`tests/public.txt` lists them with their signatures, and with the methods of what they return; a change there is a
change for users.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep import runs, weights
    from lockstep.config import Recipe
    from lockstep.errors import JobError, UserError
    from lockstep.library import resume, train
    from lockstep.result import Run
    from lockstep.script.job import job

__version__ = "0.1.0"
__all__ = ["JobError", "Recipe", "Run", "UserError", "job", "resume", "runs", "train", "weights"]

_PLACES = {
    "JobError": "lockstep.errors",
    "Recipe": "lockstep.config",
    "Run": "lockstep.result",
    "UserError": "lockstep.errors",
    "job": "lockstep.script.job",
    "resume": "lockstep.library",
    "train": "lockstep.library",
}


def _find(name: str) -> Any:
    if name in ("runs", "weights"):
        return import_module(f"lockstep.{name}")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker would take every name for one that is there
    __getattr__ = _find


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
