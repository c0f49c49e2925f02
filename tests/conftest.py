"""What tests share: a quiet place to run the real command, and the rule that CI skips nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep import checkpoint, metrics
from tests.data.s3server import owner, s3  # noqa: F401

if TYPE_CHECKING:
    from tests.engines.netns import Network

REPOSITORY = Path(__file__).resolve().parents[1]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI a skipped test is a failed one: what it needs must be installed."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("LOCKSTEP_FORBID_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipping is forbidden here: {report.longrepr}"


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The embedded data are drawn once per session, and not in the user's home."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _hangups() -> None:
    """Commands hear SIGHUP also where the tests were begun with `nohup`, which they would inherit."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_disk(workspace: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = workspace / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """A test that fails in the middle of a run ends it; its workers follow."""
    yield
    end_started()


def end_started() -> None:
    while STARTED:
        if (process := STARTED.pop()).poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def network() -> Iterator[Network]:
    """Hosts that are network namespaces."""
    from tests.engines.netns import Network

    network = Network(f"lockstep-{os.getpid()}-")
    network.delete()
    try:
        network.create()
        yield network
    finally:
        end_started()  # a namespace would live as long as they do
        network.delete()


def start(*arguments: str, cwd: Path | None = None, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """The real command in the background; `before` it stands what starts it."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "lockstep", *arguments],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    STARTED.append(process)
    return process


def run(*arguments: str, cwd: Path | None = None, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """The real command, to its end."""
    process = start(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)


WITH_PROGRAM = """
import json, sys
from dataclasses import replace
from lockstep import cli
from lockstep.cli import options
request = options.request
options.request = lambda parsed: replace(request(parsed), program=tuple(json.loads(sys.argv[1])))
sys.exit(cli.main(sys.argv[2:]))
"""


def run_with_program(program: list[str], *arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """The real command, with another program for its workers."""
    command = [sys.executable, "-c", WITH_PROGRAM, json.dumps(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def lockstep(workspace: Path) -> Command:
    """Run `lockstep ...` in the workspace."""
    return run


def digest_in(result: subprocess.CompletedProcess[str]) -> str:
    """The digest that a training printed; the whole output if it did not."""
    assert result.returncode == 0, result.stderr + result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("digest "), result.stdout
    return last.split()[1]


# 4 leaves of 4 images, with an evaluation and a checkpoint on the way.
RECIPE = [
    *["demo", "--leaves", "4", "--batch-size", "16", "--steps", "24", "--set", "log_every=1"],
    *["--set", "evaluation.every_steps=12", "--set", "evaluation.leaf_batch=50", "--set", "evaluation.max_leaves=6"],
    *["--set", "checkpoints.every_steps=8"],
]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float]]:
    """The digest, and the loss of every step, of a run with one worker."""
    directory = tmp_path_factory.mktemp("undisturbed")
    digest = digest_in(run("train", *RECIPE, "--workers", "1", "--run", "run", cwd=directory))
    rows = metrics.read(directory / "runs/run/metrics.jsonl")
    return digest, [row["loss"] for row in rows if row["kind"] == "train"]


# The same until it is stopped: no schedule that depends on the length, nothing but steps.
ENDLESS = [
    *[*RECIPE, "--steps", "1000000", "--set", "schedule.name=constant", "--set", "schedule.warmup=0"],
    *["--set", "evaluation.every_steps=0", "--set", "checkpoints.every_steps=0"],
]


def stop_and_compare(process: subprocess.Popen[str], name: str, *options: str, rows: bool = True) -> str:
    """Stop an endless run: its checkpoint has the digest of a run that has just so many steps, and its rows the same
    losses, unless not all of them could be written. Returns what it had shown."""
    stopped = run("stop", name)
    assert stopped.returncode == 0, stopped.stderr
    return compare_stopped(process, name, *options, rows=rows)


def compare_stopped(process: subprocess.Popen[str], name: str, *options: str, rows: bool = True) -> str:
    """The same for a run that has been asked to stop already."""
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 143, shown
    newest, _ = checkpoint.newest_good(Path("runs") / name / "checkpoints")
    assert newest is not None
    length = ["--steps", str(newest.step), "--workers", "2"]
    whole = run("train", *ENDLESS, *options, *length, "--run", f"{name}-whole", timeout=1000)
    assert digest_in(whole) == newest.digest, shown
    if rows:
        assert losses_before(name, newest.step) == losses_before(f"{name}-whole", newest.step)
    return shown


def losses_before(name: str, step: int) -> dict[int, float]:
    rows = metrics.read(Path("runs") / name / "metrics.jsonl")
    return {row["step"]: row["loss"] for row in rows if row["kind"] == "train" and row["step"] < step}
