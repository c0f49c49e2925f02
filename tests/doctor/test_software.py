"""What the doctor says of installed packages."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib

import pytest

from lockstep import compiler, provenance
from lockstep.doctor import software
from tests.conftest import REPOSITORY


def install(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    real = provenance.package_version
    monkeypatch.setattr(software, "package_version", lambda name: versions.get(name, real(name)))


@pytest.mark.parametrize(
    ("version", "level"),
    [("2.13.0+cpu", "ok"), ("2.12.1", "ok"), ("2.11.0", "warning"), ("2.14.0", "warning"), ("3.0", "warning")],
)
def test_torch_is_in_the_tested_range_or_not(monkeypatch: pytest.MonkeyPatch, version: str, level: str) -> None:
    install(monkeypatch, torch=version)
    found = software.torch_version()
    assert (found.level, bool(found.advice)) == (level, level != "ok")
    assert version in found.what


def test_ranges_and_needed_packages_are_those_of_the_project() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    low, high = (".".join(map(str, version)) for version in software.TORCH)
    assert f"torch>={low},<{high}" in project["dependencies"]
    assert project["requires-python"] == f">={'.'.join(map(str, software.PYTHON))}"
    names = {line.split(">")[0] for line in project["dependencies"]}
    assert set(software.NEEDED) <= names


def test_a_missing_package_is_a_problem_and_pip_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "package_version", lambda name: None if name in ("rich", "torch") else "1.0")
    for found in (software.packages(), software.torch_version()):
        assert found.level == "problem"
        assert "pip install -c constraints.txt" in found.advice
    assert software.packages().what == "rich cannot be found"


def test_an_old_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert software.python().level == "ok"
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert software.python().level == "problem"
    assert "3.11" in software.python().advice


def test_optional_packages_are_named_and_nobody_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2", "matplotlib>=3.9; extra == 'bench'", 'torchft>=0.2; extra == "peers"', "mypy; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(software, "package_version", {"matplotlib": "3.10", "torchft": None}.get)
    assert software.extras().what == "installed: matplotlib 3.10; not installed: torchft"
    assert software.extras().level == "ok"


def test_only_compile_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "version", lambda: None)
    assert software.cpp_compiler().level == "ok"
    assert "only --compile" in software.cpp_compiler().what
