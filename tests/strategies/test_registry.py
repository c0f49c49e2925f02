"""A strategy is a file, an entry in the table and its test: nothing else of Lockstep has to know of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lockstep import strategies
from tests.conftest import RECIPE, REPOSITORY, digest_in

SIGNS = """
import pathlib
from lockstep.strategies.synchronous import Synchronous
class Signs(Synchronous):
    def contribution(self, leaf):
        vector = super().contribution(leaf)
        for gradient in vector.gradients:
            gradient.sign_().mul_(0.01)
        pathlib.Path("it was used").touch()
        return vector
"""
ENTRY = """
    "signs": Entry("lockstep.strategies.signs:Signs", "own", purpose="of every number only its sign counts"),
"""


def test_a_new_strategy_is_a_file_and_an_entry(workspace: Path) -> None:
    """In a copy of Lockstep: it is listed, and trains with any number of workers to one digest."""
    package = workspace / "copy" / "lockstep"
    shutil.copytree(REPOSITORY / "lockstep", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "strategies" / "signs.py").write_text(SIGNS)
    table = package / "strategies" / "__init__.py"
    before, opening, after = table.read_text().partition("STRATEGIES: dict[str, Entry] = {")
    table.write_text(before + opening + ENTRY + after)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lockstep", *arguments]
        variables = {**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "300"}
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100)

    assert f"signs, {', '.join(strategies.STRATEGIES)}" in run("train", "--help").stdout
    digests = [
        digest_in(run("train", *RECIPE, "--steps", "3", "--workers", workers, "--strategy", "signs", "--run", workers))
        for workers in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert (workspace / "it was used").exists()
