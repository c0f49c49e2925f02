"""`lockstep predict`: what a trained model takes pictures for, here, without workers and without the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep import checkpoint, imagefile, models, rundirectory, selection, trained
from lockstep.config import Data, Recipe
from lockstep.data import description
from lockstep.data.description import Description
from lockstep.data.source import Batch, Dataset
from lockstep.device import Device, choose
from lockstep.errors import UserError
from lockstep.progress import Display, Silent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

    from lockstep.replica import Replica

    Reader = Callable[[str | Path | Image.Image], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class Guess:
    """A class, and how sure the model is of it."""

    name: str
    number: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What one picture was taken for, the most probable class first."""

    image: str
    guesses: tuple[Guess, ...] = ()
    problem: str | None = None
    """Why there are no guesses: the file is missing or broken."""


def predict(
    run: str,
    images: Sequence[str | Path | Image.Image],
    *,
    top: int = 5,
    checkpoint: str | int | None = None,
    device: str = "auto",
    display: Display | None = None,
) -> list[Prediction]:
    """The first `top` guesses for every image, a file or a Pillow image, in their order. A file that cannot be read
    gets a `problem`, and the others are predicted all the same."""
    if top < 1:
        raise UserError(f"--top takes a number of classes from 1 on, not {top}")
    directory = rundirectory.existing(run)
    recipe, _ = directory.read_config()
    selection.refuse_script(recipe, directory)
    recipe = replace(recipe, device=choose(device), compile=False)
    described = trained.describe(directory, recipe)
    if described.num_classes is None or not described.holds_images:
        what = "no classes" if described.num_classes is None else "no images"
        raise UserError(
            f"`lockstep predict` says of which class pictures are, but {directory.name} was trained on {what}: use its "
            "model in Python, with Run.load_model"
        )
    recipe = trained.with_channels(recipe, described)
    read = _reader(recipe.data, described)
    with trained.generators_kept(), selection.pinned(directory, checkpoint, display or Silent()) as info:
        replica = _load(recipe, description.without_samples(described), info)
        return [_predict_one(replica, described, read, image, top) for image in images]


def _load(recipe: Recipe, dataset: Dataset, info: checkpoint.Info) -> Replica:
    from lockstep.replica import Replica

    models.check_model(recipe.model)
    replica = Replica(recipe, dataset, max(1, info.step), _device(recipe))
    replica.load(checkpoint.load(info.path, dict(replica.named_state())))
    return replica


def _device(recipe: Recipe) -> Device:
    """In the precision of the training, but for TF32 where there is no GPU."""
    precision = "fp32" if recipe.precision == "tf32" and recipe.device != "cuda" else recipe.precision
    return Device(recipe.device, recipe.threads, precision)


def _predict_one(
    replica: Replica, described: Description, read: Reader, image: str | Path | Image.Image, top: int
) -> Prediction:
    """One at a time, so that the result does not depend on the others."""
    if not isinstance(image, str | Path):
        return Prediction("", _guesses(replica, described, read(image), top))
    try:
        return Prediction(str(image), _guesses(replica, described, read(image), top))
    except UserError as error:
        return Prediction(str(image), problem=str(error))


def _reader(data: Data, described: Description) -> Reader:
    """What makes of an image the pixels that evaluation sees: those of large images are a window of them."""
    is_framed = data.source == "imagenet" if described.is_framed is None else described.is_framed
    return _framed(data) if is_framed else _whole(described.image_shape)


def _framed(data: Data) -> Reader:
    import numpy as np

    from lockstep.data import decode, framing

    decode.check_installed()
    frame = framing.evaluation_frame(data)

    def read(image: str | Path | Image.Image) -> npt.NDArray[np.uint8]:
        if isinstance(image, str | Path):
            with imagefile.told(Path(image)):
                pixels = decode.cut(Path(image).read_bytes(), frame, data.side)
        else:
            pixels = decode.cut_image(image, frame, data.side)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    return read


def _whole(shape: tuple[int, ...]) -> Reader:
    def read(image: str | Path | Image.Image) -> npt.NDArray[np.uint8]:
        return imagefile.read(Path(image), shape) if isinstance(image, str | Path) else imagefile.to_array(image, shape)

    return read


def _guesses(replica: Replica, described: Description, pixels: npt.NDArray[np.uint8], top: int) -> tuple[Guess, ...]:
    import numpy as np

    from lockstep.evaluate import inference, seen

    with inference(replica):
        batch = Batch(pixels[None], np.zeros(1, dtype=np.int64))
        tensor, _ = replica.device.put(batch, replica.recipe.channels_last)
        probability = seen(replica, tensor, odd=True).double().softmax(1)[0]
        best = probability.topk(min(top, len(probability)))
    names = described.class_names or ()
    return tuple(
        Guess(names[number] if number < len(names) else str(number), number, value)
        for value, number in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
