"""A trained model as an ONNX file, with everything between pixels and logits. Nothing else imports onnx, an extra."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.data import description
from lockstep.errors import UserError
from lockstep.trained import Trained

if TYPE_CHECKING:
    from torch import nn


def write(found: Trained, facts: dict[str, str], path: Path) -> None:
    """Input `pixels`: float32 from 0 to 255, N x channels x height x width for any N. Output `logits`: N x classes.
    Where the data are no images, or have no classes, they are called `inputs` and `outputs`."""
    onnx = _import()
    import torch

    example = torch.zeros(2, *found.described.image_shape)
    pixels = "pixels" if found.described.holds_images else "inputs"
    logits = "outputs" if found.described.num_classes is None else "logits"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program: Any = torch.onnx.export(
            _with_preprocessing(found),
            (example,),
            input_names=[pixels],
            output_names=[logits],
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}},
            verbose=False,
        )
    proto = program.model_proto
    onnx.helper.set_model_props(proto, facts)
    onnx.save(proto, path)


def _with_preprocessing(found: Trained) -> nn.Module:
    import torch
    from torch import Tensor, nn

    from lockstep.preprocess import Preprocess

    recipe, dataset = found.recipe, description.without_samples(found.described)
    preprocess = Preprocess(recipe.data, dataset, 1, torch.device("cpu"))

    class Seen(nn.Module):
        """What evaluation does with an image, but for further views."""

        def __init__(self) -> None:
            super().__init__()
            self.model = found.model

        def forward(self, pixels: Tensor) -> Tensor:
            logits: Tensor = self.model(preprocess.resize(preprocess.normalize(pixels), None))
            return logits.float()

    return Seen().eval()


def _import() -> Any:
    try:
        import onnx
        import onnxscript  # noqa: F401, torch's exporter is made of it
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed: pip install 'lockstep-train[onnx]'") from None
    return onnx
