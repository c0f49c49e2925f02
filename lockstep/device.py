"""The one device of a process, and the only place that knows a CPU from a GPU."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Literal

from lockstep.errors import UserError

if TYPE_CHECKING:
    import torch

    from lockstep.data.source import Batch


def count_gpus() -> int:
    """GPUs on this host, asked of the driver: the supervisor imports no torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines()) if listing.returncode == 0 else 0


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose(wanted: str) -> Literal["cpu", "cuda"]:
    """Turn --device auto|cpu|cuda into a device that is there."""
    if wanted == "cpu":
        return "cpu"
    gpus = count_gpus()
    if wanted == "cuda" and gpus == 0:
        raise UserError("this host has no visible GPU, and device is cuda: take --device cpu")
    return "cuda" if gpus else "cpu"


def environment(device: str, threads: int, worker: int) -> dict[str, str]:
    """Variables that must be set before a worker imports torch."""
    variables = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    if device == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",") if visible else [str(number) for number in range(count_gpus())]
        variables["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]
    return variables


class Device:
    """Puts batches on the device and knows how its process groups are made."""

    def __init__(self, name: str, threads: int) -> None:
        import torch

        self.torch = torch.device(choose(name) if name == "auto" else name)
        self.backend = "nccl" if self.torch.type == "cuda" else "gloo"
        torch.set_num_threads(threads)
        # torch.use_deterministic_algorithms does this and imports the compiler to tell it too, which takes 1.3 s.
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        # Filling fresh memory with NaN finds bugs, but costs a pass over every activation and changes no result.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def put(self, batch: Batch, channels_last: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels as tensors on the device; the copy overlaps with kernels where the device can."""
        import torch

        images, labels = torch.from_numpy(batch.images), torch.from_numpy(batch.labels)
        if self.torch.type == "cuda":
            images, labels = images.pin_memory(), labels.pin_memory()
        images = images.to(self.torch, non_blocking=True)
        if channels_last and images.dim() == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return images, labels.to(self.torch, non_blocking=True)

    def finish(self) -> None:
        """Wait until everything queued on the device is done."""
        import torch

        if self.torch.type == "cuda":
            torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        """What the bits depend on beyond the recipe, for `environment.json`."""
        import platform

        import numpy
        import PIL
        import torch

        facts: dict[str, Any] = {
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "pillow": PIL.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "processor": _processor(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "mkl": torch.backends.mkl.is_available(),
            "mkldnn": torch.backends.mkldnn.is_available(),
            "threads": torch.get_num_threads(),
        }
        if self.torch.type == "cuda":
            facts |= {
                "gpu": torch.cuda.get_device_name(),
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
            }
        return facts


def _processor() -> str:
    import platform

    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
