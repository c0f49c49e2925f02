"""MLflow. The only file that imports it; `pip install 'lockstep-train[mlflow]'`, which takes the small mlflow-skinny.

Into `mlruns/` of the run directory, unless MLFLOW_TRACKING_URI names another store. A run keeps its id over resumes.
Rows cannot be taken back there: what is done again appears again, under the same step, and the later one counts.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The local store is plain files, for which MLflow wants to be asked; a database would need packages that skinny lacks.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
# Nobody is told that the package is used, unless the user wants it.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from lockstep.histogram import Histogram
from lockstep.loggers import Session
from lockstep.metrics import Row, scalars

STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
PARAMS_PER_REQUEST = 100
MAX_PARAM = 500
"""Characters of a value that every store accepts."""


class MLflow:
    def __init__(self, session: Session) -> None:
        directory = session.directory.path.resolve()
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or (directory / "mlruns").as_uri())
        stored = session.stored_id("mlflow")
        if stored is not None:
            self._id = stored
            self._client.update_run(stored, status="RUNNING")
            return
        self._id = self._create(directory.name)
        session.store_id("mlflow", self._id)
        params = [Param(key, str(value)[:MAX_PARAM]) for key, value in _flat(session.recipe)]
        for start in range(0, len(params), PARAMS_PER_REQUEST):
            self._client.log_batch(self._id, params=params[start : start + PARAMS_PER_REQUEST])

    def _create(self, name: str) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "lockstep"
        found = self._client.get_experiment_by_name(experiment)
        id_ = self._client.create_experiment(experiment) if found is None else found.experiment_id
        return str(self._client.create_run(id_, run_name=name).info.run_id)

    def row(self, row: Row) -> None:
        milliseconds = int(row["time"] * 1000)
        metrics = [Metric(tag, value, milliseconds, row["step"]) for tag, value in scalars(row).items()]
        self._client.log_batch(self._id, metrics=metrics)

    def image(self, tag: str, png: bytes, step: int) -> None:
        self._artifact(f"{tag}-step-{step}.png", png)

    def histograms(self, found: dict[str, Histogram], step: int) -> None:
        """MLflow has no histograms: they are kept as a file."""
        plain = {tag: {"edges": one.edges, "counts": one.counts} for tag, one in found.items()}
        self._artifact(f"histograms/step-{step}.json", json.dumps(plain).encode())

    def go_back(self, step: int) -> None:
        pass

    def close(self, state: str) -> None:
        self._client.set_terminated(self._id, STATES[state])

    def _artifact(self, name: str, contents: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="lockstep-") as directory:
            path = Path(directory) / Path(name).name
            path.write_bytes(contents)
            self._client.log_artifact(self._id, str(path), str(Path(name).parent))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`{"schedule": {"lr": 0.1}}` as `schedule.lr`."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def open_logger(session: Session) -> MLflow:
    return MLflow(session)
