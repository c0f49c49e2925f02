"""A worker's copy of what is trained: model, optimizer, statistics. All replicas are bit-identical after every step.

A replica computes the gradient of a leaf into a vector, and applies a reduced vector. It does not know the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep import compiler, models, optim, philox, schedule
from lockstep.config import Recipe
from lockstep.data.source import Batch, Dataset
from lockstep.device import Device
from lockstep.digest import digest, entries_of_tensors
from lockstep.errors import UserError
from lockstep.exchange.flat import Layout, Pool, Vector
from lockstep.spans import Spans
from lockstep.state import State, state_digest


class Replica:
    def __init__(self, recipe: Recipe, dataset: Dataset, num_steps: int, device: Device) -> None:
        self.recipe = recipe
        self.device = device
        self.spans = Spans()
        seed_generators(philox.leaf_seed(recipe.seed, -1, 0))
        self.model = models.build(recipe.model, dataset.num_classes, dataset.image_shape)
        self.layout = Layout.of(self.model, recipe.channels_last)
        self.model.to(device.torch)
        self.pool = Pool(self.layout, device.torch)
        self._parameters = [parameter for _, parameter in self.model.named_parameters()]
        self.weights = self._flatten_parameters()
        self.statistics = self._flatten_statistics()
        self._statistics_at_start = self.statistics.clone()
        self._integers = [b for _, b in self.model.named_buffers() if not b.is_floating_point()]
        self._integers_at_start = [b.clone() for b in self._integers]
        self.tally: list[list[float]] = []
        """A part of the state, see `State`."""
        self.optimizer = optim.build(recipe.optimizer, self.model)
        self.learning_rate = schedule.learning_rate(
            recipe.schedule, num_steps, len(dataset.train) / recipe.global_batch
        )
        self.model.train()
        self._compiled = compiler.compiled(self.model, recipe.device, recipe.threads) if recipe.compile else self.model

    def _flatten_parameters(self) -> Tensor:
        flat = torch.zeros(self.layout.statistics_start, dtype=torch.float32, device=self.device.torch)
        for place, parameter in zip(self.layout.gradients, self._parameters, strict=True):
            view = place.view(flat)
            view.copy_(parameter.data)
            parameter.data = view
        return flat

    def _flatten_statistics(self) -> Tensor:
        start = self.layout.statistics_start
        flat = torch.zeros(self.layout.integers_start - start, dtype=torch.float32, device=self.device.torch)
        buffers = dict(self.model.named_buffers())
        for place in self.layout.statistics:
            view = flat[place.offset - start : place.offset - start + place.shape.numel()].view(place.shape)
            view.copy_(buffers[place.name])
            buffers[place.name].data = view
        return flat

    def gradient(self, batch: Batch, seed: int) -> Vector:
        """A leaf's contribution: forward and backward from the state at the step's start, in a vector of its own."""
        vector = self.begin_leaf(seed)
        with self.spans("forward"):
            images, labels = self.device.put(batch, self.recipe.channels_last)
            logits = self.logits(images)
            loss = F.cross_entropy(logits, labels)
        with self.spans("backward"):
            loss.backward()
        self.end_leaf(vector, loss, logits, labels)
        return vector

    def logits(self, images: Tensor, odd: bool = False) -> Tensor:
        """What the model makes of images, in the recipe's precision; the result is float32, and so is the loss of it.

        The compiler is for leaves of the usual size: an odd one is computed without it.
        """
        model = self.model if odd else self._compiled
        with self.device.arithmetic():
            logits: Tensor = model(self.normalize(images))
        return logits.float()

    def begin_leaf(self, seed: int) -> Vector:
        """Make the model ready for a leaf: gradients go to a fresh vector, statistics and generators start anew."""
        vector = self.pool.take()
        vector.zero_gradients()
        for parameter, view in zip(self._parameters, vector.gradients, strict=True):
            parameter.grad = view
        self.rewind()
        seed_generators(seed)
        return vector

    @torch.no_grad()
    def end_leaf(self, vector: Vector, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Take down, behind the gradients, what the leaf did to the statistics, and its loss and hits."""
        vector.statistics.copy_(self.statistics)
        self._note_integers(vector)
        top1, top5 = hits(logits, labels)
        vector.counts[0].copy_(loss)
        vector.counts[1].copy_(top1)
        vector.counts[2].copy_(top5)

    def rewind(self) -> None:
        """Every leaf starts from the statistics of the step's start."""
        self.statistics.copy_(self._statistics_at_start)
        for live, start in zip(self._integers, self._integers_at_start, strict=True):
            live.copy_(start)

    def _note_integers(self, vector: Vector) -> None:
        for view, live, start in zip(vector.integers, self._integers, self._integers_at_start, strict=True):
            view.copy_(live.to(torch.int64) - start.to(torch.int64))

    def check_integers(self, mine: list[Tensor], reduced: Vector) -> None:
        """Integer buffers must change alike in every leaf, or no average of them means anything."""
        for place, one, mean in zip(self.layout.integers, mine, reduced.integers, strict=True):
            if not torch.equal(one, mean):
                raise UserError(
                    f"the integer buffer {place.name} changes differently from leaf to leaf: make it a floating-point "
                    "buffer, which is averaged, or keep it out of the model's state"
                )

    def apply(self, reduced: Vector, step: int) -> None:
        """The update: deterministic, elementwise, the same on every worker."""
        for parameter, view in zip(self._parameters, reduced.gradients, strict=True):
            parameter.grad = view
        optim.set_learning_rate(self.optimizer, self.learning_rate(step))
        self.optimizer.step()
        self._statistics_at_start.copy_(reduced.statistics)
        for start, change in zip(self._integers_at_start, reduced.integers, strict=True):
            start.copy_(start.to(torch.int64) + change.round().to(torch.int64))
        self.rewind()

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 to float: each image to mean 0 and deviation 1, with the floor 1/sqrt(n) on the deviation."""
        images = images.float()
        if self.recipe.data.standardize == "none":
            return images / 255.0
        return standardize(images)

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Weights and buffers by name, tied ones once."""
        yield from self.model.named_parameters()
        yield from self.model.named_buffers()

    def digest(self) -> str:
        """The digest of weights and buffers."""
        return digest(entries_of_tensors(self.named_state()))

    def state_digest(self, step: int) -> str:
        """The digest of everything that training goes on from."""
        self.rewind()
        return state_digest(self.named_state(), optim.named_state(self.optimizer, self.model).items(), step)

    def probe(self, batch: Batch, seed: int) -> str:
        """The state digest after one leaf and one update from the initial state, to which this returns. Whoever has
        another one would give the run other bits."""
        before = self.copy_state()
        vector = self.gradient(batch, seed)
        self.apply(vector, 0)
        self.pool.give(vector)
        found = self.state_digest(1)
        self.load(before)
        self.spans.take()
        return found

    def num_bytes(self) -> int:
        """About the size of a checkpoint: weights and buffers, and an optimizer that keeps as much again."""
        return 2 * sum(tensor.numel() * tensor.element_size() for _, tensor in self.named_state())

    def copy_state(self) -> State:
        """Contiguous copies in the memory of the host.

        It is the state at the start of the step, also when a leaf has left its marks on the statistics.
        """
        self.rewind()

        def copy(tensor: Tensor) -> Tensor:
            return tensor.detach().to("cpu", copy=True).contiguous()

        model = {name: copy(tensor) for name, tensor in self.named_state()}
        optimizer = {name: copy(tensor) for name, tensor in optim.named_state(self.optimizer, self.model).items()}
        return State(model, optimizer, list(self.tally))

    def load(self, state: State) -> None:
        """Go on from this state; names and shapes have been checked by whoever read it."""
        with torch.no_grad():
            for name, tensor in self.named_state():
                tensor.copy_(state.model[name])
        self._statistics_at_start.copy_(self.statistics)
        for start, live in zip(self._integers_at_start, self._integers, strict=True):
            start.copy_(live)
        optim.load_state(self.optimizer, self.model, state.optimizer)
        self.tally = list(state.tally)


def standardize(images: Tensor) -> Tensor:
    """Per-image standardisation: (x - mean) / max(deviation, 1/sqrt(n))."""
    size = images[0].numel()
    deviation, mean = torch.std_mean(images, dim=(1, 2, 3), keepdim=True, correction=0)
    return (images - mean) / deviation.clamp_min(size**-0.5)


def hits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """How many labels are the first guess, and how many are among the first five."""
    count = min(5, logits.shape[1])
    guesses = logits.topk(count, dim=1).indices == labels[:, None]
    return guesses[:, 0].sum(), guesses.sum()


def seed_generators(seed: int) -> None:
    """Every generator that a model or a loss may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)
