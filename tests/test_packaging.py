"""The built wheel holds all that is needed, without the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.conftest import REPOSITORY

COMMAND = re.compile(r"pip install 'lockstep-train\[([\w{}.]+)\]'")


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


def test_extras_are_installed_with_one_command_wherever_they_are_named() -> None:
    """In messages, in README and on the pages; README names all that a user may want."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "lockstep").rglob("*.py")]
    found = [one for page in pages for one in re.findall(r"""pip install[^`\n]*\[[^`"\n]*""", page.read_text())]
    ours = [one for one in found if "ray[default]" not in one]
    named = [match[1] if (match := COMMAND.fullmatch(one)) else one for one in ours]
    assert len(named) > 10
    assert {one for one in named if not one.startswith("{")} <= set(extras)  # a message may fill in the name
    section = (REPOSITORY / "README.md").read_text().partition("\n## Installation\n")[2].partition("\n## ")[0]
    in_readme = set(re.findall(r"`(\w+)`", section)) | {"report"}
    assert set(extras) - in_readme == {"bench", "peers", "docs", "dev"}
