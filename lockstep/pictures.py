"""What a worker makes for loggers to show: a grid of training images, histograms of weights and gradients.

The first member alone makes them, and sends them to the supervisor. Nothing here touches what is trained.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from lockstep.data.source import Inputs
from lockstep.histogram import MAX_BINS, Histogram
from lockstep.membership import Membership
from lockstep.replica import Replica
from lockstep.step import Step
from lockstep.strategies.synchronous import Synchronous

MAX_IMAGES = 64
MAX_PIXELS = 1 << 20
"""Of the whole grid, but for a single image that is larger."""
MAX_TENSORS = 500
"""A model with more tensors of weights than this gets no histograms: nobody would look at them, and they take space."""


class Pictures:
    def __init__(
        self, wanted: bool, every: int, replica: Replica, strategy: Synchronous, membership: Membership
    ) -> None:
        self._wanted = wanted
        self._every = every
        self._replica = replica
        self._strategy = strategy
        self._membership = membership
        self._first: int | None = None
        """The step that this process began with: there is no gradient before it is done."""

    def show_samples(self, step: Step) -> None:
        """The first leaf as the model sees it, augmented, before the very first step."""
        self._first = step.index
        if not self._wanted or not self._membership.is_first or step.index > 0:
            return
        if (png := grid(self._strategy.read(step.leaf(0)).images)) is not None:
            text = base64.b64encode(png).decode()
            self._membership.send({"type": "image", "tag": "train/samples", "png": text, "step": 0})
        if (count := len(self._replica.layout.gradients)) > MAX_TENSORS:
            text = f"the model has {count} tensors of weights, more than {MAX_TENSORS}: no histograms are made"
            self._membership.send({"type": "note", "text": text})

    def show_histograms(self, step: Step, evaluated: bool) -> None:
        """Weights, and the gradients of the last step where they are what travels, when they are due."""
        due = step.is_due(self._every) if self._every else evaluated
        places = self._replica.layout.gradients
        if not due or not self._wanted or not self._membership.is_first or len(places) > MAX_TENSORS:
            return
        if self._first is None or step.index <= self._first:
            return
        with self._replica.spans("report"):
            found: dict[str, Histogram] = {}
            for place, gradient in zip(places, step.reduced.gradients, strict=True):
                named = [("weights", place.view(self._replica.weights))]
                named += [("gradients", gradient)] if self._strategy.adds_gradients else []
                found |= {f"{kind}/{place.name}": one for kind, one in summaries(named)}
            plain = {tag: vars(one) for tag, one in found.items()}
            self._membership.send({"type": "histograms", "step": step.index, "histograms": plain})


def summaries(tensors: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Histogram]]:
    """The histograms of tensors that have any number in them."""
    for name, tensor in tensors:
        if (one := histogram(tensor.detach().cpu().numpy())) is not None:
            yield name, one


def histogram(values: npt.NDArray[np.float32]) -> Histogram | None:
    """Bins of equal width over all finite values; None if there is none."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return None
    counts, edges = np.histogram(finite, bins=MAX_BINS)
    return Histogram(
        low=float(edges[0]),
        high=float(edges[-1]),
        counts=tuple(counts.tolist()),
        minimum=float(finite.min()),
        maximum=float(finite.max()),
        sum=float(finite.sum()),
        sum_of_squares=float(np.square(finite).sum()),
    )


def grid(images: Inputs) -> bytes | None:
    """Some images (n x channels x height x width) beside each other, as a PNG file; None if they have no colours, or
    are no images at all."""
    if images.dtype != np.uint8 or images.ndim != 4:
        return None
    _, channels, height, width = images.shape
    if channels not in (1, 3):
        return None
    count = min(len(images), MAX_IMAGES, max(1, MAX_PIXELS // (height * width)))
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    canvas = np.zeros((rows * columns, height, width, 3), dtype=np.uint8)
    canvas[:count] = images[:count].transpose(0, 2, 3, 1)
    tiles = canvas.reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    file = io.BytesIO()
    Image.fromarray(tiles.reshape(rows * height, columns * width, 3)).save(file, "png")
    return file.getvalue()
