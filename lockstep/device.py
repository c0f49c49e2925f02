"""The one device of a process and the precision it computes in; the only place that knows a CPU from a GPU."""

from __future__ import annotations

import os
import subprocess
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

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


def choose(wanted: str) -> Literal["cpu", "cuda"]:
    """Turn --device auto|cpu|cuda into a device that is there."""
    if wanted == "cpu":
        return "cpu"
    gpus = count_gpus()
    if wanted == "cuda" and gpus == 0:
        raise UserError("this host has no visible GPU, and device is cuda: take --device cpu")
    return "cuda" if gpus else "cpu"


def environment(threads: int, precision: str) -> dict[str, str]:
    """Variables that must be set before a worker imports torch; nothing of the user's may change the precision."""
    variables = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    }
    if precision != "tf32":
        variables["NVIDIA_TF32_OVERRIDE"] = "0"
    return variables


def one_gpu(place: int) -> dict[str, str]:
    """The variable that gives a process one of this host's GPUs, by its place here, where no scheduler does."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(number) for number in range(count_gpus())]
    if not gpus:
        raise UserError("this host has no visible GPU, and the job computes on GPUs: take --device cpu")
    return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]}


class Device:
    """Puts batches on the device, computes in the precision, and knows how its process groups are made."""

    def __init__(self, name: str, threads: int, precision: str = "fp32") -> None:
        import torch

        self.torch = torch.device(choose(name) if name == "auto" else name)
        if self.torch.type == "cuda" and not torch.cuda.is_available():
            raise UserError(
                f"the job computes on a GPU, and PyTorch {torch.__version__} cannot use one here: take --device cpu, "
                "or install a build of PyTorch that fits the driver"
            )
        self.backend = "nccl" if self.torch.type == "cuda" else "gloo"
        torch.set_num_threads(threads)
        # torch.use_deterministic_algorithms does this and imports the compiler to tell it too, which takes 1.3 s.
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        # Filling fresh memory with NaN finds bugs, but costs a pass over every activation and changes no result.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        self._is_mixed = precision == "bf16"

    def arithmetic(self) -> AbstractContextManager[object]:
        """Inside it a model's products and convolutions have the precision of the recipe; weights stay in float32."""
        import torch

        return torch.autocast(self.torch.type, torch.bfloat16) if self._is_mixed else nullcontext()

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
