"""The command's side of a script: what it is, found out by running it up to its loop in a process of its own.

Neither torch nor the script is imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep import device
from lockstep.config import Recipe, Script
from lockstep.configfile import recipe_from_plain
from lockstep.data.description import Gone
from lockstep.data.source import Dataset
from lockstep.errors import JobError, UserError

SHOWN_LINES = 15
"""Of a script's output, when it has ended before its loop."""
MUST_AGREE = ("global_batch", "leaves", "seed", "threads")


def program(script: Script) -> tuple[str, ...]:
    return (sys.executable, "-m", "lockstep.script.program", script.path, *script.arguments)


def dataset_of(script: Script) -> Dataset:
    """The place of data that only the script can read."""
    return Dataset(
        train=Gone(script.num_samples),
        test=Gone(0),
        is_gone=True,
        num_classes=0,
        image_shape=(0, 0, 0),
        holds_images=False,
    )


def describe(path: str, arguments: tuple[str, ...]) -> Recipe:
    """What a script trains."""
    _check_path(path)
    file = str(Path(path).resolve())
    with tempfile.TemporaryFile("w+") as output:
        said, code = _ask(Script(path=file, arguments=arguments), output)
        output.seek(0)
        shown = output.read()
    if "recipe" in said:
        return recipe_from_plain(said["recipe"], path)
    if "user" in said:
        raise UserError(f"{path}: {said['user']}")
    if "exit" in said:  # such as by --help, or because its own arguments are wrong
        print(shown, end="", flush=True, file=sys.stderr if said["exit"] else sys.stdout)
        sys.exit(said["exit"])
    if "ended" in said:
        raise UserError(f"{path} ended without training: it must iterate over job.batches(...), see docs/own-loop.md")
    cause = said.get("error") or "\n".join([f"it ended with code {code}", *shown.splitlines()[-SHOWN_LINES:]])
    raise JobError(f"{path} failed before it began to train:\n{cause.rstrip()}")


def _check_path(path: str) -> None:
    if Path(path).is_dir():
        raise UserError(f"{path} is a directory: give a Python script")
    if not Path(path).is_file():
        raise UserError(f"there is no script {path}: look at its path")


def _ask(script: Script, output: Any) -> tuple[dict[str, Any], int]:
    """What the process said of the script, and its exit code."""
    reading, writing = os.pipe()
    variables = {**device.environment(1, "fp32"), "LOCKSTEP_DESCRIBE": str(writing)}
    try:
        ended = subprocess.run(
            list(program(script)),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            check=False,
        )
    finally:
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
    return (json.loads(text) if text else {}), ended.returncode


def again(stored: Recipe, asked: Recipe | None, note: Callable[[str], None]) -> Recipe:
    """The recipe of a run that is continued, with its script as it is now: it may have changed, but what it trains may
    not. `asked` is what it has just said of itself, if it was asked already."""
    before = stored.script
    assert before is not None
    is_known = asked is not None and asked.script is not None
    if is_known and (asked.script.path, asked.script.arguments) == (before.path, before.arguments):  # type: ignore[union-attr]
        now = asked
    else:
        now = describe(before.path, before.arguments)
    assert now is not None
    assert now.script is not None
    if now.script.sha256 != before.sha256:
        note(f"{before.path} has changed since the run began: the bits may be others")
    differing = [name for name in MUST_AGREE if getattr(now, name) != getattr(stored, name)]
    if differing or now.script.num_samples != before.num_samples:
        what = differing[0] if differing else "the number of samples"
        raise UserError(
            f"the script trains something else than this run: {what} was another. Undo that, or start a new run"
        )
    return replace(stored, script=now.script, steps=now.steps, device=now.device)
