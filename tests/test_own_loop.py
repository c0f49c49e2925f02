"""A user's own loop over `step` and `leaf` objects ends on the digest of the built-in one, for every N."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from lockstep import api
from lockstep.request import Request
from tests.conftest import REPOSITORY

RECIPE = """
from torch import nn
from lockstep.config import Data, Evaluation, Model, Recipe

def net(num_classes, image_shape, hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

def mine():
    model = Model(name="mine.py:net", options={"hidden": 4})
    evaluation = Evaluation(max_leaves=1)
    return Recipe(name="mine", data=Data(source="shapes"), model=model, global_batch=16, steps=3, evaluation=evaluation)
"""


def test_a_recipe_and_its_model_in_a_file_elsewhere(workspace: Path) -> None:
    """The model's file is named relative to the recipe's, not to where the command is typed."""
    (workspace / "below").mkdir()
    (workspace / "below/mine.py").write_text(RECIPE)
    run = api.train("below/mine.py:mine", Request(workers=2))
    assert run.name == "mine-1"
    assert run.digest is not None
    assert api.resume("mine-1", Request(workers=1)).digest == run.digest


def test_the_sketch_ends_on_the_digest_of_the_built_in_loop(workspace: Path) -> None:
    settings = ["evaluation.max_leaves=1", "data.mixup=0.4", "label_smoothing=0.1"]

    def digest(workers: int, own: bool) -> str | None:
        program = {"program": (sys.executable, str(REPOSITORY / "examples/inner_loop.py"))} if own else {}
        request = Request(workers=workers, leaves=4, batch_size=16, steps=5, settings=settings, **program)  # type: ignore[arg-type]
        return api.train("demo", request, run=f"{workers}-{own}").digest

    built_in = digest(1, own=False)
    assert built_in is not None
    assert digest(1, own=True) == digest(2, own=True) == built_in


def test_the_page_shows_the_scripts_of_the_examples() -> None:
    """F84: who makes the changes of the diff has the second script."""
    names = ("one_process.py", "own_loop.py")
    before, after = ((REPOSITORY / "examples" / name).read_text() for name in names)
    diff = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names, n=1)
    page = (REPOSITORY / "docs/own-loop.md").read_text()
    assert f"```diff\n{''.join(diff)}```" in page
    assert f"```python\n# file: own_loop.py\n{after}```" in page
