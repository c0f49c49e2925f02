"""`lockstep export`: a trained model as a file for others, who need no Lockstep to use it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import onnxfile, rundirectory, trained
from lockstep.errors import UserError, unknown
from lockstep.progress import Display, Silent
from lockstep.trained import Trained

if TYPE_CHECKING:
    from torch import Tensor

Write = Callable[[Trained, dict[str, str], Path], None]


def export(
    run: str,
    to: str,
    *,
    out: str | Path | None = None,
    checkpoint: str | int | None = None,
    display: Display | None = None,
) -> Path:
    """Write the model of a run to a file, `<run>.<suffix>` here if `out` does not say where. `checkpoint` is "best",
    "last" or a step; by default the newest good one is taken, with the moving average of its weights if it has one."""
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    suffix, write = FORMATS[to]
    path = Path(out) if out is not None else Path(f"{rundirectory.existing(run).path.resolve().name}{suffix}")
    if path.exists():
        raise UserError(f"{path} exists already: delete it, or choose another name with --out")
    found = trained.load(run, checkpoint, display or Silent())
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(found, metadata(found), temporary)
        temporary.rename(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another place with --out") from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def metadata(found: Trained) -> dict[str, str]:
    """What whoever uses the weights must know: plain texts, and JSON for everything else."""
    from lockstep.preprocess import side_at

    data, described = found.recipe.data, found.described
    normalize: dict[str, Any] = {"kind": data.standardize}
    if data.standardize == "channel":
        normalize |= {"mean": data.mean, "deviation": data.deviation}
    shape, side = list(described.image_shape), side_at(data.sizes, None)
    if side is not None:
        shape[1:] = [side, side]
    if not described.holds_images:
        normalize = {"kind": "none of it: inputs go into the model as they are"}
    values = {
        "model": dataclasses.asdict(found.recipe.model),
        "num_classes": described.num_classes,
        "image_shape": shape,
        "class_names": described.class_names,
        "normalize": normalize,
        "step": found.step,
    }
    return {"run": found.run, **{key: json.dumps(value) for key, value in values.items()}}


def _write_torch(found: Trained, facts: dict[str, str], path: Path) -> None:
    import torch

    with path.open("wb") as file:
        torch.save({name: tensor.contiguous() for name, tensor in found.model.state_dict().items()}, file)


def _write_safetensors(found: Trained, facts: dict[str, str], path: Path) -> None:
    """Tied weights are there once, as `safetensors.torch.load_model` expects them."""
    from safetensors.torch import save

    once = {name for named in (found.model.named_parameters(), found.model.named_buffers()) for name, _ in named}
    state: dict[str, Tensor] = found.model.state_dict()
    tensors = {name: tensor.contiguous() for name, tensor in state.items() if name in once}
    path.write_bytes(save(tensors, metadata={"format": "pt", **facts}))


FORMATS: dict[str, tuple[str, Write]] = {
    "torch": (".pt", _write_torch),
    "safetensors": (".safetensors", _write_safetensors),
    "onnx": (".onnx", onnxfile.write),
}
"""The suffix of a format, and who writes it."""
