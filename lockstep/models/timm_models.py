"""Models of timm (PyTorch Image Models): `timm:NAME`. Nothing else imports timm, which is an extra."""

from __future__ import annotations

import difflib
import importlib.util
from typing import TYPE_CHECKING, Any

from lockstep.errors import UserError
from lockstep.torchvisionimport import import_torchvision

if TYPE_CHECKING:
    from torch import nn

OURS = ("num_classes", "in_chans", "pretrained")
"""Arguments that are not for the user: what the data say, and that training starts from the seed."""


def check(name: str, options: dict[str, Any]) -> None:
    """Refuse an unknown name, and options that the model does not take."""
    timm = _import()
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), 1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else "timm.list_models() in Python lists the known ones"
        raise UserError(f"unknown timm model {name!r}: {hint}")
    for option in OURS:
        if option in options:
            raise UserError(f"option {option!r} of model 'timm:{name}' is set by Lockstep: leave it out")
    _try(name, options)


def _try(name: str, options: dict[str, Any]) -> None:
    """Build the model without its memory, to see whether timm takes the options."""
    import torch

    try:
        with torch.device("meta"):
            build(name, num_classes=10, image_shape=(3, 32, 32), **options)
    except TypeError as error:
        raise UserError(f"timm does not take the options of model 'timm:{name}': {error}") from None
    except Exception:
        return  # not every model can be built in this way; a worker will say what is wrong


def build(name: str, num_classes: int, image_shape: tuple[int, int, int], **options: Any) -> nn.Module:
    network: nn.Module = _import().create_model(
        name, pretrained=False, num_classes=num_classes, in_chans=image_shape[0], **options
    )
    return network


def _import() -> Any:
    try:
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()
        import timm
    except ModuleNotFoundError:
        raise UserError("timm is not installed, or not all that it needs: pip install 'lockstep-train[timm]'") from None
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(
            f"timm cannot be imported ({error}): install the torchvision that was built for your torch"
        ) from None
    return timm
