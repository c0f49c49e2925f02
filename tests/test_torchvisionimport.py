"""A torchvision that was built for another torch, as it is beside the torch of these tests, is of use all the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

OWN = "from torchvision.models import resnet18\ndef net(num_classes): return resnet18(num_classes=num_classes)\n"
BUILD = """
from lockstep import models
from lockstep.config import Model
print(models.build(Model(name={name!r}), 7, (3, 32, 32)).fc.out_features)
"""


@pytest.mark.parametrize("name", ["torchvision.models:resnet18", "own.py:net"])
def test_models_of_torchvision_are_built_also_in_code_of_the_users_own(workspace: Path, name: str) -> None:
    """In a process of its own, since only the first import fails."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    (workspace / "own.py").write_text(OWN)
    result = subprocess.run([sys.executable, "-c", BUILD.format(name=name)], capture_output=True, text=True, timeout=60)
    assert result.stdout == "7\n", result.stderr
