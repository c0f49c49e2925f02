"""Weights & Biases. The only file that imports it; `pip install 'lockstep-train[wandb]'`.

Offline, into `wandb/` of the run directory, unless WANDB_MODE or WANDB_API_KEY says otherwise. A run keeps its id over
resumes. Rows cannot be taken back there: what is done again appears again, under the same `step`.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Mapping

# Nobody is told of errors inside the package, unless the user wants it.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb
from PIL import Image

from lockstep.histogram import Histogram
from lockstep.loggers import Session
from lockstep.metrics import Row, scalars

EXIT_CODES = {"finished": 0, "stopped": 0, "failed": 1}


class WeightsAndBiases:
    def __init__(self, session: Session) -> None:
        id_ = session.stored_id("wandb")
        if id_ is None:
            id_ = secrets.token_hex(4)
            session.store_id("wandb", id_)
        mode = choose_mode(os.environ)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lockstep"),
            name=session.directory.path.resolve().name,
            dir=str(session.directory.path.resolve()),
            id=id_,
            resume=None if mode == "offline" else "allow",  # sessions that are synced later are joined by their id
            config=session.recipe,
            mode=mode,
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Its own count of steps may only grow, and would refuse rows that are done again.
        self._run.define_metric("*", step_metric="step")

    def row(self, row: Row) -> None:
        self._run.log({"step": row["step"], **scalars(row)})

    def image(self, tag: str, png: bytes, step: int) -> None:
        self._run.log({"step": step, tag: wandb.Image(Image.open(io.BytesIO(png)))})

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        shown = {tag: wandb.Histogram(np_histogram=(one.counts, one.edges)) for tag, one in found.items()}
        self._run.log({"step": step, **shown})

    def go_back(self, step: int) -> None:
        pass

    def close(self, state: str) -> None:
        self._run.finish(exit_code=EXIT_CODES[state])


def choose_mode(environment: Mapping[str, str]) -> str:
    """Nothing leaves the machine unless the user has said so."""
    return environment.get("WANDB_MODE") or ("online" if environment.get("WANDB_API_KEY") else "offline")


def open_logger(session: Session) -> WeightsAndBiases:
    return WeightsAndBiases(session)
