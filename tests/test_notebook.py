"""A real notebook with a real kernel: a model and data that are defined in cells, progress below the cell,
and the interrupt.

All of it happens in one notebook, whose kernel takes seconds to start.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from lockstep import checkpoint
from tests.conftest import REPOSITORY, digest_in, run

pytestmark = pytest.mark.timeout(240)  # the kernel and four trainings come before the first test

MODEL = """
class Net(nn.Sequential):
    def __init__(self, num_classes, image_shape, width=WIDTH):
        super().__init__(nn.Flatten(), nn.Linear(math.prod(image_shape), width), nn.ReLU(), head(width, num_classes))


def head(inputs, outputs):
    return nn.Linear(inputs, outputs)
"""

DATA = """
def noise():
    images = np.random.default_rng(0).integers(0, 256, (SIZE, 3, 8, 8), np.uint8)
    labels = np.arange(SIZE) % 10
    return (images, labels), (images[:20], labels[:20])
"""

BEGIN = """
import math
import threading, signal
import lockstep
import numpy as np
from torch import nn
WIDTH = 4
SIZE = 40
"""

TRAIN = """
settings = {"log_every": 1, "evaluation.max_leaves": 1, "schedule.name": "constant", "schedule.warmup": 0}
small = {"leaves": 2, "batch_size": 8, "workers": 2, "model": Net, "data": noise, "settings": settings}
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], set(threading.enumerate())
run = lockstep.train("demo", run="first", steps=4, **small)
"""

AFTER = """
after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], set(threading.enumerate())
print(before == after, run.state, run.digest, type(run.load_model()).__name__)
"""

INTERRUPTED = """
run = lockstep.train("demo", run="second", steps=1_000_000, **small)
print(run.state, run.signal)
"""

RESUMED = """
steps = int(run.checkpoints[-1].name.split("-")[1]) + 2
run = lockstep.resume("second", stop_at=steps, progress=False)
print(run.state, steps, run.digest)
"""

MISTAKE = 'lockstep.train("demo", model=lambda num_classes, image_shape: nn.Linear(1, 1))'

REFUSED = "a lambda has no name by which workers could find it"

OPTIONS = [
    *["demo", "--leaves", "2", "--batch-size", "8", "--workers", "1", "--set", "evaluation.max_leaves=1"],
    *[
        "--set",
        "schedule.name=constant",
        "--set",
        "schedule.warmup=0",
        "--model",
        "net.py:Net",
        "--data",
        "net.py:noise",
    ],
]
"""The same for the command, with one worker, and the model and the data in a file."""


class Client(NotebookClient):  # type: ignore[misc]
    """Interrupts the cell that has shown the third of a million steps, once."""

    is_interrupted = False

    def process_message(self, message: dict[str, Any], cell: Any, index: int) -> Any:
        text = message["content"].get("data", {}).get("text/plain", "")
        if not self.is_interrupted and text.startswith("step 3") and "/1000000:" in text:
            self.is_interrupted = True
            self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(message, cell, index)


@dataclass(frozen=True)
class Notebook:
    directory: Path
    cells: dict[str, Any]

    def printed(self, cell: str) -> str:
        return "".join(output.text for output in self.cells[cell].outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Notebook:
    directory = tmp_path_factory.mktemp("notebook")
    sources = {"BEGIN": BEGIN, "MODEL": MODEL, "DATA": DATA, "TRAIN": TRAIN, "AFTER": AFTER}
    sources |= {"INTERRUPTED": INTERRUPTED, "RESUMED": RESUMED, "MISTAKE": MISTAKE}
    cells = {name: nbformat.v4.new_code_cell(source) for name, source in sources.items()}
    document = nbformat.v4.new_notebook(cells=list(cells.values()))
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(variable, str(directory / variable))
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        client = Client(document, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(directory)}})
        with pytest.raises(CellExecutionError) as mistake:
            client.execute(env=dict(os.environ))
    assert (mistake.value.ename, mistake.value.evalue.partition(":")[0]) == ("UserError", REFUSED), mistake.value
    (directory / "net.py").write_text(BEGIN.replace("import lockstep", "") + MODEL + DATA)
    return Notebook(directory, cells)


def test_model_and_data_of_cells_train_on_two_workers_as_those_of_a_file_on_one(notebook: Notebook) -> None:
    digest = digest_in(run("train", *OPTIONS, "--steps", "4", cwd=notebook.directory))
    assert notebook.printed("AFTER") == f"True finished {digest} Net\n"


def test_progress_is_shown_below_the_cell(notebook: Notebook) -> None:
    first, bar, *_ = notebook.cells["TRAIN"].outputs
    assert (first.name, first.text) == (
        "stdout",
        "first: 2 workers, 2 leaves of 4 images, 4 steps; logs in runs/first/logs\n",
    )
    assert bar.data["text/plain"].startswith("step 4/4: loss ")
    assert bar.data["text/html"].startswith('<progress value="4" max="4"></progress> <code>step 4/4: loss ')
    assert "step 4: top1 " in notebook.printed("TRAIN")


def test_an_interrupt_stops_with_a_checkpoint_and_the_run_goes_on_to_the_same_bits(notebook: Notebook) -> None:  # F78
    shown = notebook.printed("INTERRUPTED").splitlines()
    assert "SIGINT: stopping after a checkpoint (once more to stop at once)" in shown
    assert shown[-1] == "stopped SIGINT"
    state, steps, digest = notebook.printed("RESUMED").split()
    assert state == "finished"
    undisturbed = run("train", *OPTIONS, "--steps", "1000000", "--stop-at", steps, cwd=notebook.directory)
    assert digest_in(undisturbed) == digest


def test_the_run_holds_the_code_of_the_cell_and_can_be_moved(notebook: Notebook) -> None:
    """And a run that is made from it has its own copy."""
    config = json.loads((notebook.directory / "runs/first/config.json").read_text())
    assert config["recipe"]["model"]["name"] == "code/cell.py:Net"
    assert config["recipe"]["data"]["source"] == "code/data.py:noise"
    moved = notebook.directory / "elsewhere"
    (notebook.directory / "runs/first").rename(moved)
    assert digest_in(run("resume", f"{moved}/", "--workers", "1", "--steps", "5", cwd=notebook.directory))
    again = run("train", f"{moved}", "--steps", "5", "--run", "third", "--workers", "1", cwd=notebook.directory)
    newest, _ = checkpoint.newest_good(moved / "checkpoints")
    assert newest is not None
    assert digest_in(again) == newest.digest
    copy = notebook.directory / "runs/third/code/cell.py"
    assert copy.read_text() == (moved / "code/cell.py").read_text()
    assert json.loads((copy.parents[1] / "config.json").read_text())["recipe"]["model"]["name"] == "code/cell.py:Net"
    for options in (["diff", f"{moved}/", "third"], ["runs", "--delete", "third", "--yes"]):
        result = run(*options, cwd=notebook.directory)
        assert result.returncode == 0, result.stderr
    assert not copy.exists()
