"""The built wheel holds all that is needed, without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.conftest import REPOSITORY


def test_a_built_wheel_trains_away_from_the_repository(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True, env={**os.environ, "PIP_CONSTRAINT": ""})
    (wheel,) = tmp_path.glob("lockstep_train-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "lockstep/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "bench"))]
    code = "import lockstep; print(lockstep.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    where = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert where.stdout.startswith(str(tmp_path / "site"))
    train = [sys.executable, "-m", "lockstep", "train", "demo", "--steps", "2", "--workers", "2"]
    result = subprocess.run(train, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "digest " in result.stdout, result.stderr
