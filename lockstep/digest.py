"""The digest: SHA-256 over weights and buffers in the order of their names (name, type, shape, little-endian bytes).

It needs no torch: `lockstep digest` reads safetensors files as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Entry = tuple[str, str, Sequence[int], Any]
"""Name, type as safetensors spells it, shape, and the bytes in any object that hashlib takes."""


def digest(entries: Iterable[Entry], also: str = "") -> str:
    """The digest of named arrays; `also` is text that belongs to the state, such as the step."""
    total = hashlib.sha256()
    for name, dtype, shape, data in sorted(entries, key=lambda entry: entry[0]):
        total.update(f"{name}\0{dtype}\0{','.join(map(str, shape))}\0".encode())
        total.update(data)
    if also:
        total.update(f"\0{also}".encode())
    return total.hexdigest()


def entries_of_tensors(tensors: Iterable[tuple[str, Tensor]], prefix: str = "") -> list[Entry]:
    import torch

    names = {
        torch.float32: "F32",
        torch.float64: "F64",
        torch.float16: "F16",
        torch.bfloat16: "BF16",
        torch.int64: "I64",
        torch.int32: "I32",
        torch.int16: "I16",
        torch.int8: "I8",
        torch.uint8: "U8",
        torch.bool: "BOOL",
    }
    entries: list[Entry] = []
    for name, tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        entries.append((prefix + name, names[tensor.dtype], tuple(tensor.shape), flat.numpy().data))
    return entries


def entries_of_file(path: Path, prefix: str = "") -> list[Entry]:
    """What a safetensors file holds."""
    import safetensors

    stored = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    return [(prefix + name, tensor["dtype"], tensor["shape"], tensor["data"]) for name, tensor in stored]
