"""Every command in the documentation runs (console blocks) or at least parses (shell blocks)."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli import parser
from lockstep.config import Recipe
from tests.conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text()) if kind == language]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run_as_they_are_written(page: Path, tmp_path: Path) -> None:
    commands = [line[2:] for body in blocks(page, "console") for line in body.splitlines() if line.startswith("$ ")]
    for body in blocks(page, "python"):
        if match := re.match(r"# file: (\S+)\n", body):
            (tmp_path / match[1]).write_text(body)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "bin").mkdir()
    for name, options in {"python": "", "lockstep": "-m lockstep"}.items():
        launcher = tmp_path / "bin" / name
        launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options} "$@"\n')
        launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    for command in commands:
        result = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_need_a_site_parse(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    for body in blocks(page, "shell"):
        for line in body.splitlines():
            words = shlex.split(line, comments=True)
            if "lockstep" in words:  # itself, or started by a launcher
                parser().parse_args(words[words.index("lockstep") + 1 :])
            if words[:1] == ["make"]:
                assert words[1] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("from-*.md")), ids=lambda page: page.name)
def test_what_newcomers_are_told_to_type_exists(page: Path) -> None:
    """Options and keys of the configuration in the column "here" of the tables."""
    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    known = {option for command in commands.values() for option in command._option_string_actions}
    known |= {option for command in submits(commands) for option in command._option_string_actions}
    told = [row.split(" | ")[-1] for row in page.read_text().splitlines() if row.startswith("| ")]
    code = " ".join(text for cell in told for text in re.findall(r"`([^`]+)`", cell))
    assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", code)) <= known
    for section, key in re.findall(r"\b(schedule|optimizer|data|evaluation|checkpoints)\.(\w+)", code):
        assert hasattr(getattr(Recipe(name="any"), section), key), f"{section}.{key}"


@pytest.mark.parametrize(
    ("page", "heading", "command", "elsewhere"),
    [
        ("commands.md", "## lockstep train RECIPE", "train", set()),
        ("recipes.md", "## Changing a recipe on the command line", "config", {"--set"}),
    ],
)
def test_every_option_is_in_the_table(page: str, heading: str, command: str, elsewhere: set[str]) -> None:
    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    section = (REPOSITORY / "docs" / page).read_text().partition(heading)[2].partition("\n## ")[0]
    cells = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `--")]
    told = set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(cells))) | elsewhere | {"--help"}
    options = [one.option_strings for one in commands[command]._actions if one.option_strings]
    assert [names for names in options if told.isdisjoint(names)] == []


def submits(commands: dict[str, argparse.ArgumentParser]) -> list[argparse.ArgumentParser]:
    actions = commands["submit"]._actions
    return [
        one for action in actions if isinstance(action, argparse._SubParsersAction) for one in action.choices.values()
    ]


def test_there_are_commands_to_run() -> None:
    assert sum(len(blocks(page, "console")) for page in PAGES) >= 4
