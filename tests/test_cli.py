"""The command itself: instant, without torch, with examples that parse."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli import parser
from lockstep.recipes.demo import demo
from tests.conftest import REPOSITORY, Command, run, start
from tests.test_resume import TINY

COMMANDS = [
    "train",
    "resume",
    "evaluate",
    "predict",
    "export",
    "stop",
    "resize",
    "digest",
    "recipes",
    "runs",
    "config",
    "data",
]
COMMANDS += ["doctor", "demo", "join", "submit", "launch", "compare", "diff"]


def test_help_imports_no_torch_and_is_instant() -> None:
    """Instant in seconds of the processor, which a busy machine does not change."""
    code = "import sys, time, lockstep.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted(sys.modules))\nprint(time.process_time())"
    seconds = []
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        loaded, spent = result.stdout.splitlines()[-2:]
        seconds.append(float(spent))
    for heavy in ("'torch'", "'numpy'", "'rich'", "'tensorboard'", "'asyncio'"):
        assert heavy not in loaded
    assert min(seconds) < 0.5


def test_the_supervisor_imports_no_torch() -> None:
    loggers = "lockstep.loggers.tensorboard, lockstep.loggers.csv, lockstep.loggers.wandb, lockstep.loggers.mlflow"
    code = f"import sys, lockstep.api, {loggers}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_imports_point_one_way() -> None:
    """The contracts are in pyproject.toml."""
    tool = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([str(tool), "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0
    example = result.stdout.split("example: lockstep ")[1].strip()
    assert example.startswith(command)
    parser().parse_args(shlex.split(example))


def test_all_commands_are_covered_above() -> None:
    listed = run("--help").stdout
    assert [name for name in COMMANDS if f"\n    {name} " not in listed] == []
    assert listed.count("\n    ") - listed.count("\n     ") == len(COMMANDS) + listed.count("\n    COMMAND")


def test_recipes_are_listed_with_their_summary(lockstep: Command) -> None:
    lines = lockstep("recipes").stdout.splitlines()
    assert any(line.startswith("  demo ") and "  A small network on the embedded shapes" in line for line in lines)
    assert any(line.startswith("  resnet20-cifar10 ") and "  ResNet-20 on CIFAR-10" in line for line in lines)
    assert len({line.index(line.split(maxsplit=1)[1]) for line in lines if line.startswith("  ")}) == 1
    objects = list(map(json.loads, lockstep("recipes", "--json").stdout.splitlines()))
    assert {"name": "demo", "source": "shapes", "summary": (demo.__doc__ or "").splitlines()[0]} in objects


def test_a_recipe_is_explained(lockstep: Command, workspace: Path) -> None:
    shown = lockstep("recipes", "demo").stdout
    assert "\nlockstep train demo --workers 2\n" in shown
    assert json.loads(shown[shown.index("{") :]) == json.loads(json.dumps(dataclasses.asdict(demo())))
    plain = json.loads(lockstep("recipes", "demo", "--json").stdout)
    assert "above 98 % top1" in plain["description"]
    (workspace / "own.py").write_text(
        'def mine():\n    """Mine."""\n    from lockstep.recipes import RECIPES\n    return RECIPES["demo"]()\n'
    )
    assert lockstep("recipes", "own.py:mine").stdout.startswith("Mine.\n\n{")
    assert "did you mean 'demo'" in lockstep("recipes", "demmo").stderr


def test_config_shows_what_would_be_trained(lockstep: Command) -> None:
    result = lockstep("config", "demo", "--lr", "0.2", "--epochs", "3", "--set", "model.width=8", "--data", "synthetic")
    resolved = json.loads(result.stdout)
    assert resolved["schedule"]["lr"] == 0.2
    assert (resolved["epochs"], resolved["steps"]) == (3.0, None)
    assert resolved["model"]["options"] == {"width": 8}
    assert resolved["data"]["source"] == "synthetic"
    assert resolved["device"] in ("cpu", "cuda")


def test_a_reader_that_leaves_early_is_no_error(workspace: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m lockstep config demo | head -1"
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    result = subprocess.run(command, shell=True, cwd=workspace, env=environment, capture_output=True, text=True)
    assert result.stdout == "{\n"
    assert "Traceback" not in result.stderr


def test_default_names_count_up_and_the_cost_of_odd_workers_is_said(lockstep: Command) -> None:
    arguments = [*TINY, "--leaves", "4", "--steps", "1", "--workers", "3"]
    for number in (1, 2):
        result = lockstep("train", *arguments)
        assert result.returncode == 0, result.stderr
        assert f"demo-{number}: 3 workers, 4 leaves of 4 images, 1 step; logs in " in result.stderr
        assert "3 workers share 4 leaves: as fast as 2" in result.stderr
        assert Path(f"runs/demo-{number}/config.json").exists()


def test_two_commands_at_once_take_two_names(workspace: Path) -> None:
    commands = [start("train", *TINY, "--steps", "1", "--workers", "1", cwd=workspace) for _ in range(2)]
    outputs = [command.communicate(timeout=60) for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert sorted(path.name for path in Path("runs").iterdir()) == ["demo-1", "demo-2"]


def test_a_terminal_gets_a_progress_bar(workspace: Path) -> None:
    """A real pseudo-terminal; elsewhere plain lines come, as the other tests see."""
    import os
    import pty

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "lockstep", "train", *TINY, "--steps", "12", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=workspace, env=environment, stdout=subprocess.PIPE, stderr=child)
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 65536):
            seen += piece
    except OSError:
        pass  # the other side of the terminal has closed
    assert process.wait(timeout=30) == 0
    assert "━" in seen.decode()
    assert "12/12" in seen.decode()
