"""`--compile`: torch.compile, told to give the same bits in every process.

Nothing here is imported by torch before it is used: a worker without `--compile` never loads the compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import nn


def name() -> str:
    """The C++ compiler that torch.compile calls."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def version() -> str | None:
    """The first line of what the compiler says of itself; None if there is none."""
    try:
        said = subprocess.run([name(), "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.splitlines()[0] if said.returncode == 0 and said.stdout else None


def check(device: str) -> None:
    """Refuse `--compile` where it cannot work."""
    if shutil.which(name()) is None:
        raise UserError(
            f"--compile needs a C++ compiler, and {name()} is not there: install gcc (g++), set CXX, or leave out "
            "--compile"
        )
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        raise UserError("--compile on a GPU needs triton: install the package triton, or leave out --compile")


def compiled(model: nn.Module, device: str, threads: int, num_shapes: int = 1) -> nn.Module:
    """The model with forward and backward compiled, for so many fixed shapes of a leaf. It shares parameters and
    buffers."""
    import torch

    check(device)
    # This tells the compiler too: no kernel is chosen by measuring.
    torch.use_deterministic_algorithms(True)
    import torch._dynamo.config
    import torch._inductor.config

    torch._inductor.config.cpp.threads = threads  # a part of the key under which results are cached
    torch._inductor.config.fallback_random = True  # dropout draws what it draws without the compiler
    # What is computed again for the backward pass is rounded as it was: otherwise a maximum in bf16 is equal to none of
    # the values that it was taken of, and its gradient is 0 / 0.
    torch._inductor.config.emulate_precision_casts = True
    # Beyond the limit it would go on uncompiled, with other bits, at a moment that depends on what came before.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    # For each shape, in training and in evaluation.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * num_shapes + 2)
    made: nn.Module = torch.compile(model, dynamic=False)  # type: ignore[assignment]
    return made
