"""timm and torchvision for the tests that compare with them."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import pytest

from lockstep.torchvisionimport import import_torchvision


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """The real one, as Lockstep imports it."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    return import_torchvision()


@pytest.fixture(scope="session")
def timm(torchvision: ModuleType) -> ModuleType:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return importlib.import_module("timm")
