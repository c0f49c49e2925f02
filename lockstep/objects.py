"""What `lockstep.train` takes as an object in the place of a name: the functions and classes of a model, of data, of a
loss and of a metric. Workers are given names; how the code of a notebook is written down for them is in
`lockstep.extraction`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep import extraction, runcode
from lockstep.calling import needed
from lockstep.data import own
from lockstep.errors import UserError
from lockstep.models import GIVEN


@dataclass(frozen=True)
class Kind:
    """What may be passed as an object."""

    takes: str
    instead: str
    """Why nothing else will do, and what would."""
    must: str
    """How it is called."""
    is_fit: Callable[[inspect.Signature], object]
    """Whether it can be called so; a TypeError says no as well."""


KINDS = {
    "model": Kind(
        "the name of a model, or a function or class that makes one",
        "every worker makes its own",
        "take num_classes and image_shape, which say what the data are, and options by name",
        lambda signature: not needed(signature, GIVEN) or any(name in signature.parameters for name in GIVEN),
    ),
    "data": Kind(
        "a path, the name of a source, or a function that returns the training and the test set",
        "every worker reads for itself, so give a function that returns it",
        "have no parameters but path and eval_path",
        lambda signature: not needed(signature, own.GIVEN),
    ),
    "loss": Kind(
        "a name, or a function of outputs and targets",
        "every worker has its own, so write it as a function with `def`",
        "take the outputs and the targets",
        lambda signature: signature.bind(None, None),
    ),
}
KINDS["metric"] = KINDS["loss"]


@contextlib.contextmanager
def named(kind: str, thing: Any) -> Iterator[str | None]:
    """A name by which others find a function or a class, for as long as this lasts: `module:function`, or
    `file.py:function` of a file that is written here. What is a name already stays."""
    if thing is None or isinstance(thing, str) or (isinstance(thing, Path) and kind == "data"):
        yield None if thing is None else str(thing)
    elif (name := _checked(kind, thing).__module__) != "__main__":
        yield _in_module(thing, sys.modules[name])
    else:
        with tempfile.TemporaryDirectory(prefix="lockstep-") as stage:
            file = Path(stage).resolve() / Path(runcode.FILES[kind]).name
            file.write_text(extraction.text([thing]), encoding="utf-8")
            yield f"{file}:{thing.__name__}"


def _checked(kind: str, thing: Any) -> Any:
    """A function or a class, if it is one that can be written down and called."""
    wanted = KINDS[kind]
    if not callable(thing) or not hasattr(thing, "__qualname__"):
        raise UserError(f"{kind} takes {wanted.takes}, not {type(thing).__name__}: {wanted.instead}")
    extraction.check_place(thing)
    try:
        is_fit = wanted.is_fit(inspect.signature(thing))
    except ValueError:  # there are functions that do not say
        is_fit = True
    except TypeError:
        is_fit = False
    if not is_fit:
        raise UserError(f"{thing.__name__} must {wanted.must}")
    return thing


def _in_module(thing: Any, module: ModuleType) -> str:
    """The name of something that is in a file already."""
    name, file = thing.__name__, Path(module.__file__ or "/")
    if getattr(module, name, None) is not thing:
        raise UserError(f"{module.__name__} has no {name} that is this one: pass one that can be imported from there")
    if not extraction.not_found([extraction.package_of(module.__name__)]):
        return f"{module.__name__}:{name}"
    parts = module.__name__.split(".")
    roots = [root for root in file.parents if root.joinpath(*parts) in (file.with_suffix(""), file.parent)]
    return f"{roots[0]}/{module.__name__}:{name}" if roots else f"{file}:{name}"
