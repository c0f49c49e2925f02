"""torchvision, which models of timm and code of the user's own may import. Lockstep itself does not need it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def is_of_another_torch(error: RuntimeError) -> bool:
    """Whether an import failed because torchvision was built for another torch."""
    return "operator torchvision::" in str(error)


def import_torchvision() -> ModuleType:
    """torchvision, also where its compiled part was built for another torch.

    Beside a torch for CPUs, pip installs a torchvision for CUDA. That part is then not loaded, and the import fails
    where torchvision describes the shapes of two operators in it. They sort out boxes, which no classifier has, so it
    is enough to declare them; whoever calls them is still told by torchvision that they are not there.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if not is_of_another_torch(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what is left of the failed import
    # torchvision has imported torch; whoever only looks up names must not.
    library = importlib.import_module("torch").library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    module = importlib.import_module("torchvision")
    module.declared_operators = library  # type: ignore[attr-defined]  # they live as long as this object
    return module
