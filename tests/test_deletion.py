"""`lockstep runs --delete`: the runs that are named, and nothing else, whatever stands in the way."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import deletion
from lockstep.cli import main
from lockstep.errors import UserError
from lockstep.rundirectory import RunDirectory
from tests.conftest import REPOSITORY
from tests.test_rundirectory import make_run


def test_several_runs_are_deleted_and_others_stay(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for age, name in enumerate(("c", "b", "a")):
        make_run(f"runs/{name}", age)
    Path("runs/a/checkpoints/step-000000001").mkdir()
    Path("runs/a/checkpoints/step-000000001/model.safetensors").write_bytes(b"x" * 2_000_000)
    assert main(["runs", "--delete", "a", "last", "c", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted a\ndeleted c\n"
    assert [path.name for path in Path("runs").iterdir()] == ["b"]


def test_without_a_terminal_yes_is_needed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("runs/a")
    Path("runs/a/metrics.jsonl").write_bytes(b"x" * 3_000_000)
    assert main(["runs", "--delete", "a"]) == 2
    assert "this would delete a (3.0 MB): add --yes to do it" in capsys.readouterr().err
    assert Path("runs/a").exists()


@pytest.mark.parametrize(("answer", "stays"), [(b"y\n", False), (b"\n", True), (b"n\n", True)])
def test_a_terminal_is_asked(workspace: Path, answer: bytes, stays: bool) -> None:
    make_run("runs/a")
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "lockstep", "runs", "--delete", "a"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, stdin=child, stdout=subprocess.PIPE, env=environment)
    os.write(parent, answer)
    out, _ = process.communicate(timeout=30)
    os.close(child)
    os.close(parent)
    assert process.returncode == 0
    assert b"delete a (0.0 MB)? [y/N]" in out
    assert Path("runs/a").exists() is stays


def test_one_that_must_stay_keeps_all(workspace: Path) -> None:
    make_run("runs/a")
    with pytest.raises(UserError, match="did you mean 'a'"):
        deletion.check(["a", "aa"])
    with make_run("runs/busy").locked(), pytest.raises(UserError, match="busy is running: end it first"):
        deletion.check(["a", "busy"])
    assert Path("runs/a/config.json").exists()


def test_only_directories_of_runs_are_deleted(workspace: Path) -> None:
    Path("runs/settings").mkdir(parents=True)
    Path("runs/settings/config.json").write_text('{"compilerOptions": {}}')
    with pytest.raises(UserError, match="not a Lockstep configuration"):
        deletion.check(["settings"])
    make_run("project")
    Path("project/thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"holds thesis\.tex, which Lockstep did not write"):
        deletion.check(["./project"])
    assert Path("project/thesis.tex").read_text() == "precious"


def test_the_directory_that_one_is_in_stays(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run("runs/a")
    monkeypatch.chdir("runs/a/logs")
    for name in ("..", "../"):
        with pytest.raises(UserError, match="go elsewhere first"):
            deletion.check([name])


def test_links_are_not_followed(workspace: Path) -> None:
    make_run("elsewhere")
    Path("precious").mkdir()
    Path("precious/file").write_text("precious")
    Path("runs").mkdir()
    Path("runs/linked").symlink_to(Path("elsewhere").resolve())
    with pytest.raises(UserError, match="is a link to"):
        deletion.check(["linked"])
    run = make_run("runs/a")
    (run.path / "logs").rmdir()
    (run.path / "logs").symlink_to(Path("precious").resolve())
    (run.path / "checkpoints/step-000000001").symlink_to(Path("precious").resolve())
    (one,) = deletion.check(["a"])
    assert deletion.num_bytes(one) < 10_000
    deletion.delete(one)
    assert not run.path.exists()
    assert Path("precious/file").read_text() == "precious"
    assert Path("elsewhere/config.json").exists()


def test_a_deletion_that_was_cut_short_leaves_a_run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("runs/a")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(deletion, "_remove", refuse)
        with pytest.raises(UserError, match="cannot be deleted"):
            deletion.delete(run)
    deletion.delete(*deletion.check(["a"]))
    assert not run.path.exists()


def test_what_was_put_into_a_directory_is_taken_out_again_and_nothing_else(workspace: Path) -> None:
    Path("exp/code").mkdir(parents=True)
    Path("exp/code/mine.py").write_text("mine")
    directory = RunDirectory(Path("exp"))
    before = deletion.Before(directory)
    make_run("exp")
    for name in ("code/cell.py", "wandb/deep/file", "not-lockstep's.txt"):
        Path("exp", name).parent.mkdir(parents=True, exist_ok=True)
        Path("exp", name).write_text("new")
    before.restore()
    assert sorted(map(str, Path("exp").rglob("*"))) == ["exp/code", "exp/code/mine.py", "exp/not-lockstep's.txt"]
