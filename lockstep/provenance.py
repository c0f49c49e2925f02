"""What the bits depend on beyond the recipe: versions, libraries, the processor. `environment.json` records it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from typing import TYPE_CHECKING, Any

from lockstep import compiler, host

if TYPE_CHECKING:
    from lockstep.device import Device

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
)
"""Variables of a user by which libraries choose other code."""

NOT_FACTS = ("version", "probe", "mixed", "reproducible", "inputs")
"""Keys of `environment.json` that say nothing of the machine."""


def facts_of(environment: dict[str, Any]) -> dict[str, Any]:
    """What `describe` has said, from `environment.json`."""
    return {key: value for key, value in environment.items() if key not in NOT_FACTS}


def describe(device: Device, compiles: bool) -> dict[str, Any]:
    """The facts; a run is compared with a worker by them when their bits differ."""
    import numpy
    import torch

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": host.processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        **math_libraries(torch.__config__.show()),
        **jpeg_decoder(),
        **opencv(),
        "threads": torch.get_num_threads(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    if compiles:
        facts["compiler"] = compiler.version()
        facts["triton"] = package_version("triton")
    return facts | _gpu(device)


def math_libraries(built_with: str) -> dict[str, str | None]:
    """The versions of MKL and oneDNN (once called MKL-DNN), from what torch says of its build."""
    patterns = {"mkl": r"Math Kernel Library Version (.*?) for ", "mkldnn": r"MKL-DNN (v\S+)"}
    found = {name: re.search(pattern, built_with) for name, pattern in patterns.items()}
    return {name: match[1] if match is not None else None for name, match in found.items()}


def jpeg_decoder() -> dict[str, str | None]:
    """Pillow, and the library that it decodes with if this process has loaded it."""
    facts = {"pillow": package_version("pillow")}
    if "PIL.Image" in sys.modules:
        from PIL import features

        facts["libjpeg"] = features.version("libjpeg_turbo") or features.version("jpg")
    return facts


def opencv() -> dict[str, str]:
    """The decoder of large images, if this process has loaded it."""
    module = sys.modules.get("cv2")
    return {} if module is None else {"opencv": module.__version__}


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu(device: Device) -> dict[str, Any]:
    import torch

    if device.torch.type != "cuda":
        return {}
    return {
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "tf32_override": os.environ.get("NVIDIA_TF32_OVERRIDE"),
    }
