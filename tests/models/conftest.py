"""timm and torchvision for the tests that compare with them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """The real one. Where it was built for CUDA and torch for CPUs, its C++ operators cannot be loaded, and importing
    it fails where it describes the shapes of two of them. They have to do with boxes and no classifier uses them, so it
    is enough to declare them."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    module = importlib.import_module("torchvision")
    module.declared_operators = library  # type: ignore[attr-defined]  # they live as long as this object
    return module


@pytest.fixture(scope="session")
def timm(torchvision: ModuleType) -> ModuleType:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return importlib.import_module("timm")
