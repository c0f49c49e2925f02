"""Checks of what is installed: Python, torch, the packages that Lockstep needs, and those that it can use."""

from __future__ import annotations

import importlib.metadata
import re
import sys

from lockstep import compiler
from lockstep.doctor.finding import Finding
from lockstep.provenance import package_version

PYTHON = (3, 11)
TORCH = ((2, 12), (2, 14))
"""The versions that are tested: from the first to below the second, as `pyproject.toml` says."""
NEEDED = ("msgspec", "numpy", "rich", "safetensors", "tensorboard")
INSTALL = "install what is missing with `pip install -c constraints.txt .` in Lockstep's directory"


def python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        return Finding("problem", "python", found, f"use Python {wanted} or newer")
    return Finding("ok", "python", f"{found} at {sys.executable}")


def torch_version() -> Finding:
    found = package_version("torch")
    if found is None:
        return Finding("problem", "torch", "is not installed", INSTALL)
    low, high = (".".join(map(str, version)) for version in TORCH)
    match = re.match(r"(\d+)\.(\d+)", found)
    if match is None or not TORCH[0] <= (int(match[1]), int(match[2])) < TORCH[1]:
        advice = "take a tested version, as in constraints.txt; others may work, with other bits"
        return Finding("warning", "torch", f"{found}; tested is from {low} to below {high}", advice)
    return Finding("ok", "torch", f"{found}, tested is from {low} to below {high}")


def packages() -> Finding:
    versions = {name: package_version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return Finding("problem", "packages", f"{', '.join(missing)} cannot be found", INSTALL)
    return Finding("ok", "packages", ", ".join(f"{name} {version}" for name, version in versions.items()))


def extras() -> Finding:
    """Packages of the optional parts, from what the distribution says of itself."""
    names = sorted(optional_packages() - set(NEEDED) - {"torch"})
    versions = {name: package_version(name) for name in names}
    there = [f"{name} {version}" for name, version in versions.items() if version is not None]
    missing = [name for name, version in versions.items() if version is None]
    what = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Finding("ok", "extras", what)


def optional_packages() -> set[str]:
    try:
        wanted = importlib.metadata.requires("lockstep-train") or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    found = (
        re.match(r"[\w.-]+", line) for line in wanted if "extra ==" in line and not re.search(r"extra == .dev", line)
    )
    return {match[0] for match in found if match is not None}


def cpp_compiler() -> Finding:
    version = compiler.version()
    if version is None:
        return Finding("ok", "compiler", f"there is no {compiler.name()}; only --compile needs one")
    return Finding("ok", "compiler", f"{version}, for --compile")
