"""The Containerfile fits the repository. It is read here, not built: there is no registry of images."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lockstep.cli import parser
from tests.conftest import REPOSITORY

INSTRUCTIONS = {"FROM", "ARG", "RUN", "ENV", "COPY", "USER", "WORKDIR", "CMD"}


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """Instructions and what follows them, continued lines joined."""
    text = (REPOSITORY / "Containerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return {**document["project"], "version_path": document["tool"]["hatch"]["version"]["path"]}


def argument(steps: list[tuple[str, str]], name: str) -> str:
    return next(text.removeprefix(f"{name}=") for kind, text in steps if kind == "ARG" and text.startswith(f"{name}="))


def copied(steps: list[tuple[str, str]]) -> set[str]:
    return {source for kind, text in steps if kind == "COPY" for source in text.split()[:-1]}


def test_it_consists_of_instructions_that_are_known(steps: list[tuple[str, str]]) -> None:
    assert {kind for kind, _ in steps} <= INSTRUCTIONS
    assert steps[0] == ("FROM", "debian:bookworm-slim")


def test_what_it_copies_exists_and_is_not_ignored(steps: list[tuple[str, str]]) -> None:
    sources = copied(steps)
    assert len(sources) >= 5
    assert [source for source in sources if not (REPOSITORY / source).exists()] == []
    let_in = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == {Path(source).parts[0] for source in sources}


def test_what_it_copies_is_enough_to_build_the_package(
    steps: list[tuple[str, str]], project: dict[str, object]
) -> None:
    needed = {"pyproject.toml", "constraints.txt", "lockstep", project["readme"], project["version_path"]}
    assert needed | set(project["license-files"]) <= copied(steps)  # type: ignore[call-overload]


def test_its_extras_exist(steps: list[tuple[str, str]], project: dict[str, object]) -> None:
    extras = argument(steps, "EXTRAS").split(",")
    assert extras == ["ray", "s3", "imagenet"]
    assert set(extras) <= set(project["optional-dependencies"])  # type: ignore[call-overload]


def test_its_python_is_supported(steps: list[tuple[str, str]], project: dict[str, object]) -> None:
    major, minor = map(int, argument(steps, "PYTHON").split("."))
    least = re.fullmatch(r">=(\d+)\.(\d+)", str(project["requires-python"]))
    assert least is not None
    assert (major, minor) >= (int(least[1]), int(least[2]))
    assert f"Programming Language :: Python :: {major}.{minor}" in project["classifiers"]  # type: ignore[operator]


def test_it_installs_the_tested_versions_and_looks_at_the_result(steps: list[tuple[str, str]]) -> None:
    runs = [text for kind, text in steps if kind == "RUN"]
    assert all("-c /src/constraints.txt" in text for text in runs if "pip install" in text)
    assert runs[-1] == "lockstep doctor"
    parser().parse_args(runs[-1].split()[1:])
