"""What travels to the nodes of a cluster, and how it is found there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from lockstep import references
from lockstep.engines import luggage
from lockstep.errors import UserError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Code beside everything that must stay where it is."""
    project = tmp_path / "project"
    for name in ("models.py", "nets/blocks.py", "nets/sizes.json", ".git/hook.py", "runs/a/config.json", "env/lib.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(f"NAME = {name!r}\n")
    (project / "env/pyvenv.cfg").touch()
    (project / "weights.npy").touch()
    (project / "large.json").write_text(" " * (luggage.MAX_FILE_BYTES + 1))
    (project / "images").mkdir()
    for number in range(luggage.MAX_ENTRIES + 1):
        (project / f"images/{number}.json").touch()
    return project


def packed(project: Path, stage: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Pack, and find oneself on a node that has got it."""
    stage.mkdir()
    packages = luggage.pack([project], stage)
    monkeypatch.syspath_prepend(stage)
    monkeypatch.delitem(sys.modules, luggage.PACKAGE, raising=False)
    return packages


def test_only_code_travels(project: Path) -> None:
    names = [str(path.relative_to(project)) for path in luggage.source_files(project)]
    assert names == ["models.py", "nets/blocks.py", "nets/sizes.json"]


def test_a_directory_with_too_much_code_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(luggage, "MAX_FILES", 2)
    with pytest.raises(UserError, match="put the model into a directory of its own"):
        luggage.source_files(project)


def test_the_code_of_a_directory_full_of_data_travels_all_the_same(project: Path) -> None:
    (project / "images/models.py").touch()
    assert project / "images/models.py" in luggage.source_files(project / "images")


def test_a_node_that_does_not_see_the_code_finds_the_copy(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F83: gone, or another file under the same name; a model by its old name is the one that was packed."""
    own, files = packed(project, tmp_path / "stage", monkeypatch)
    assert (own / "worker.py").is_file()
    assert luggage.moved([str(project)]) == {}
    (project / "models.py").write_text("NAME = 'another'\n")
    moved = luggage.moved([str(project)])
    assert moved == {str(project): str(files / "0")}
    monkeypatch.setenv("LOCKSTEP_MOVED", json.dumps(moved))
    assert references.load(f"{project}/models.py:NAME") == "models.py"
    assert references.load(f"{project}/nets.blocks:NAME") == "nets/blocks.py"
    (project / "models.py").unlink()
    assert luggage.moved([str(project)]) == moved


def test_without_code_of_the_users_own_nothing_is_looked_for() -> None:
    assert luggage.moved([]) == {}


def test_what_was_asked_of_ray_job_submit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """F83: Ray refuses to merge what both ask for, unless told that ours holds the other."""
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "")
    assert luggage.runtime_env(["/stage/lockstep"]) == {"py_modules": ["/stage/lockstep"]}
    asked = {"runtime_env": {"py_modules": ["gcs://theirs.zip"], "working_dir": "gcs://work.zip"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(asked))
    assert luggage.runtime_env(["/stage/lockstep"]) == {"py_modules": ["/stage/lockstep", "gcs://theirs.zip"]}
    assert os.environ["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"


def test_variables_that_are_meant_for_the_job_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_INJECT", "kill worker=1 step=3 phase=exchange")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/here")
    assert luggage.variables()["LOCKSTEP_INJECT"].startswith("kill")
    assert "LD_LIBRARY_PATH" not in luggage.variables()
