"""`--init`: the weights that training starts from, out of a file: safetensors, or what `torch.save` wrote of tensors.

Nothing in a file is executed. Every worker reads the file itself and compares its checksum with the one that the
command has taken, so start weights never travel. A resume does not need the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import UserError, nearest
from lockstep.state import State

if TYPE_CHECKING:
    from torch import Tensor, nn

    Tensors = dict[str, Tensor]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
"""How files of weights are usually called, and no run."""
WRAPPERS = ("state_dict", "model_state_dict", "model", "module")
"""Under which names training scripts keep the weights beside other things."""
PREFIXES = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before every name."""


def checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"the start weights {path} cannot be read here ({error.strerror}): {REACH}") from None


REACH = "put them where every worker sees them under this name"


def start(model: nn.Module, num_classes: int | None, path: Path, sha256: str) -> tuple[State, str | None]:
    """The state before the first step, and what is to be said of it: which weights are not from the file."""
    if checksum(path) != sha256:
        raise UserError(f"the start weights {path} are not the file with which the run began: {REACH}")
    values, fresh = fit(read(path), model, num_classes, path)
    note = f"{' and '.join(fresh)} start anew: {path} is for another number of classes" if fresh else None
    return State(values, {}), note


def read(path: Path) -> Tensors:
    """The tensors of a file, by the names of the model that it was saved from."""
    with path.open("rb") as file:
        is_safetensors = file.read(9)[8:] == b"{"
    found = _unwrapped(_read_safetensors(path) if is_safetensors else _read_torch(path), path)
    for prefix in PREFIXES * 2:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


def _read_safetensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is a damaged safetensors file: {error}") from None


def _read_torch(path: Path) -> Any:
    import pickle

    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds more than weights, or is no file of weights: save model.state_dict() with torch.save, or "
            "with safetensors; what could run code is not loaded"
        ) from None
    except Exception as error:  # garbage may fail anywhere
        what = str(error).partition("\n")[0] or "it is empty, or cut short"
        raise UserError(f"{path} cannot be read as weights: {what}") from None


def _unwrapped(document: Any, path: Path) -> Tensors:
    from torch import Tensor

    if isinstance(document, dict):
        for inner in (document, *(document.get(name) for name in WRAPPERS)):
            if isinstance(inner, dict) and inner and all(isinstance(one, Tensor) for one in inner.values()):
                return {str(name): tensor for name, tensor in inner.items()}
    raise UserError(f"{path} holds no weights by name: save model.state_dict() with torch.save, or with safetensors")


def fit(found: Tensors, model: nn.Module, num_classes: int | None, path: Path) -> tuple[Tensors, list[str]]:
    """The values of all parameters and buffers, and the names of those that keep what they have: the head, where the
    file's has another number of classes."""
    expected = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    found = _without_second_names(found, model)
    _compare_names(found, expected, model, path)
    fresh = [name for name, tensor in expected.items() if name in found and tensor.shape != found[name].shape]
    _check_head({name: (expected[name], found[name]) for name in fresh}, num_classes, path)
    return {n: t.detach() if n in fresh or n not in found else found[n] for n, t in expected.items()}, fresh


def _without_second_names(found: Tensors, model: nn.Module) -> Tensors:
    """Tied weights have several names in torch's own files; the first one counts."""
    first: dict[int, str] = {}
    names = {
        name: first.setdefault(id(tensor), name)
        for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
        for name, tensor in named
    }
    known = {names[name]: tensor for name, tensor in reversed(found.items()) if name in names}
    return {**known, **{name: tensor for name, tensor in found.items() if name not in names}}


def _compare_names(found: Tensors, expected: Tensors, model: nn.Module, path: Path) -> None:
    needed = [name for name in model.state_dict() if name in expected and not name.endswith("num_batches_tracked")]
    for name in found:
        if name not in expected:
            raise UserError(f"{path} is of another model: it has {name!r}{_hint(name, expected, 'the model')}")
    for name in needed:
        if name not in found:
            raise UserError(f"{path} is of another model: it lacks {name!r}{_hint(name, found, 'the file')}")


def _hint(name: str, known: Tensors, who: str) -> str:
    close = nearest(name, known)
    return f"; the nearest name that {who} has is {close!r}" if close is not None else ""


def _check_head(pairs: dict[str, tuple[Tensor, Tensor]], num_classes: int | None, path: Path) -> None:
    """Shapes may differ in the number of classes alone, and all by the same two numbers."""
    others = {their.shape[0] for _, their in pairs.values() if their.dim()}
    for name, (our, their) in pairs.items():
        is_head = our.shape[:1] == (num_classes,) and our.dim() == their.dim() and our.shape[1:] == their.shape[1:]
        if not is_head or len(others) != 1:
            raise UserError(
                f"{path} is of another model: {name!r} has shape {tuple(their.shape)} there and {tuple(our.shape)} here"
            )
