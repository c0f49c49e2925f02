"""A worker's copy of what is trained: model, optimizer, statistics. All replicas are bit-identical after every step.

A replica computes the gradient of a leaf into a vector, and applies a reduced vector. It does not know the others.
Model and optimizer are what the recipe describes, or what a script of the user's own has made: then the script computes
leaves, after `begin_leaf`, and steps the optimizer, after `show_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor, nn

from lockstep import compiler, generators, initial, mixing, models, optim, philox, schedule
from lockstep.average import Average
from lockstep.config import Recipe
from lockstep.data.mix import Mix
from lockstep.data.source import Batch, Dataset, in_order
from lockstep.device import Device
from lockstep.digest import digest, entries_of_tensors
from lockstep.errors import UserError
from lockstep.exchange.flat import Layout, Pool, Vector
from lockstep.exchange.link import Traffic
from lockstep.models import fitting
from lockstep.objective import Objective
from lockstep.preprocess import Preprocess
from lockstep.spans import Spans
from lockstep.state import State, state_digest


@dataclass(frozen=True)
class Given:
    """What a script has made, in place of what a recipe describes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    kept: Callable[[], dict[str, Tensor]]
    """What else the script must go on from."""
    restore: Callable[[dict[str, Tensor]], None]
    """Go on from that."""


class Replica:
    def __init__(
        self, recipe: Recipe, dataset: Dataset, num_steps: int, device: Device, given: Given | None = None
    ) -> None:
        self.recipe = recipe
        self.num_steps = num_steps
        self.num_classes = dataset.num_classes
        self.device = device
        self.spans = Spans()
        self.traffic = Traffic()
        self.objective = Objective(recipe, dataset.num_classes)
        self._given = given
        if given is None:
            generators.seed(philox.leaf_seed(recipe.seed, -1, 0))
            self.model = models.build(recipe.model, dataset.num_classes, dataset.image_shape)
        else:
            self.model = given.model
        self.layout = Layout.of(self.model, recipe.channels_last, self.objective.num_counts)
        self.model.to(device.torch)
        self.preprocess = Preprocess(recipe.data, dataset, num_steps, device.torch)
        self._initialize_from(dataset)
        self.pool = Pool(self.layout, device.torch)
        self._parameters = [parameter for _, parameter in self.model.named_parameters()]
        self.weights = self._flatten_parameters()
        self.statistics = self._flatten_statistics()
        self._statistics_at_start = self.statistics.clone()
        self._integers = [b for _, b in self.model.named_buffers() if not b.is_floating_point()]
        self._integers_at_start = [b.clone() for b in self._integers]
        self.tally: list[list[float]] = []
        """A part of the state, see `State`."""
        self.optimizer = optim.build(recipe.optimizer, self.model) if given is None else given.optimizer
        self.learning_rate = schedule.learning_rate(
            recipe.schedule, num_steps, Fraction(len(dataset.train), recipe.global_batch)
        )
        self.average = Average(recipe.average, self.layout, self.weights, self.statistics) if recipe.average else None
        # A script changes its gradients in place, and the reduced vector must stay as it is.
        changes_gradients = recipe.optimizer.clip_norm or given is not None
        self._clipped = Vector(self.layout, device.torch) if changes_gradients else None
        if given is None:  # a script may want a part of its model to be in evaluation mode
            self.model.train()
        self._first_steps = self.preprocess.first_steps()
        self._compiled = (
            compiler.compiled(self.model, recipe.device, recipe.threads, len(self._first_steps))
            if recipe.compile
            else self.model
        )

    def _initialize_from(self, dataset: Dataset) -> None:
        """Show the first training images to a model that takes weights from them; to all replicas the same."""
        source = dataset.plain or dataset.train
        if isinstance(self.model, models.InitializedFromImages) and not dataset.is_gone:
            batch = source.fetch(in_order(0, min(models.NUM_INITIAL_IMAGES, len(source))))
            images, _ = self.device.put(batch, self.recipe.channels_last)
            self.model.initialize_from(self.preprocess.normalize(images))

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

    def gradient(self, batch: Batch, seed: int, step: int) -> Vector:
        """A leaf's contribution: forward and backward from the state at the step's start, in a vector of its own."""
        vector = self.begin_leaf(seed)
        with self.spans("forward"):
            images, labels = self.device.put(batch, self.recipe.channels_last)
            logits = self.logits(images, step, batch.mix)
            loss = self.objective.loss(logits, labels, batch.mix)
        with self.spans("backward"):
            loss.backward()
        self.end_leaf(vector, loss, logits, labels)
        return vector

    def logits(self, images: Tensor, step: int | None, mix: Mix | None = None, *, odd: bool = False) -> Tensor:
        """What the model makes of images, in the recipe's precision; the result is float32, and so is the loss of it.

        `step` is None in evaluation. The compiler is for leaves of the usual size: an odd one is computed without it.
        """
        model = self.model if odd else self._compiled
        images = self.preprocess.resize(mixing.mix_images(self.preprocess.normalize(images), mix), step)
        is_first = self._given is None and (step is None or step in self._first_steps)
        with self.device.arithmetic(), fitting.told(self.recipe.model, images.shape) if is_first else nullcontext():
            logits = model(images)
        if not isinstance(logits, Tensor):
            raise UserError(
                f"the model returned {type(logits).__name__} and no tensor: let its forward return the outputs alone"
            )
        return logits.float()

    def begin_leaf(self, seed: int) -> Vector:
        """Make the model ready for a leaf: gradients go to a fresh vector, statistics and generators start anew."""
        vector = self.pool.take()
        vector.zero_gradients()
        self._set_gradients(vector)
        self.rewind()
        generators.seed(seed)
        return vector

    def _set_gradients(self, vector: Vector) -> None:
        """Let the model's gradients be those of a vector; what is not trained has none."""
        for parameter, view in zip(self._parameters, vector.gradients, strict=True):
            parameter.grad = view if parameter.requires_grad else None

    @torch.no_grad()
    def end_leaf(self, vector: Vector, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Take down, behind the gradients, what the leaf did to the statistics, and its loss, hits and metric."""
        self.note_buffers(vector)
        self.objective.take_down(vector.counts, loss, logits, labels)

    @torch.no_grad()
    def collect_gradients(self, vector: Vector) -> None:
        """Gradients that were made anew, as after `optimizer.zero_grad()`, belong to the leaf's vector all the same."""
        for parameter, view in zip(self._parameters, vector.gradients, strict=True):
            if parameter.grad is not None and parameter.grad is not view:
                view.copy_(parameter.grad)

    def note_buffers(self, vector: Vector) -> None:
        """Take down what a leaf did to statistics and integer buffers."""
        vector.statistics.copy_(self.statistics)
        self._note_integers(vector)

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
            if not torch.allclose(one, mean, rtol=1e-6, atol=0.0):  # a mean over what is no power of two is rounded
                raise UserError(
                    f"the integer buffer {place.name} changes differently from leaf to leaf: make it a floating-point "
                    "buffer, which is averaged, or keep it out of the model's state"
                )

    def apply(self, reduced: Vector, step: int) -> None:
        """The update: deterministic, elementwise, the same on every worker."""
        self.update(reduced, step)
        if self.average is not None:
            self.average.update(range(step, step + 1))

    def update(self, reduced: Vector, step: int) -> None:
        """The update without the moving average: what a step does to everything that the next one starts from."""
        self._set_gradients(self._clip(reduced))
        optim.update(self.optimizer, self.recipe.optimizer, self.learning_rate, step)
        self.take_buffers(reduced)

    def show_gradients(self, reduced: Vector) -> None:
        """Give a script the mean gradients, its own to change, and the model the mean statistics."""
        assert self._clipped is not None
        self._clipped.flat_gradients.copy_(reduced.flat_gradients)
        self._set_gradients(self._clipped)
        self.take_buffers(reduced)

    def take_buffers(self, reduced: Vector) -> None:
        """The statistics of a vector, and its changes of integer buffers, are what the next step starts from."""
        self.put_statistics(reduced.statistics)
        self.advance_integers(reduced.integers)

    def put_statistics(self, statistics: Tensor) -> None:
        """Let leaves start from these floating-point buffers."""
        self._statistics_at_start.copy_(statistics)
        self.rewind()

    def advance_integers(self, changes: list[Tensor]) -> None:
        """What a step does to the integer buffers."""
        for start, change in zip(self._integers_at_start, changes, strict=True):
            start.copy_(start.to(torch.int64) + change.round().to(torch.int64))
        self.rewind()

    def adopt_buffers(self) -> None:
        """Let leaves start from the buffers as a script has left them."""
        self._statistics_at_start.copy_(self.statistics)
        for start, live in zip(self._integers_at_start, self._integers, strict=True):
            start.copy_(live)

    def _clip(self, reduced: Vector) -> Vector:
        """Gradients with at most the recipe's norm. The reduced vector stays as it is: someone behind may need it."""
        if self._clipped is None:
            return reduced
        factor = optim.clip_factor(reduced.flat_gradients, self.recipe.optimizer.clip_norm)
        if factor == 1.0:
            return reduced
        torch.mul(reduced.flat_gradients, factor, out=self._clipped.flat_gradients)
        return self._clipped

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Meanwhile the model is as it is evaluated: with its running statistics, and with averages if there are."""
        self.model.eval()
        try:
            with self.average.in_use() if self.average is not None else nullcontext():
                yield
        finally:
            self.model.train()

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Weights and buffers by name, tied ones once."""
        yield from self.model.named_parameters()
        yield from self.model.named_buffers()

    def named_average(self) -> Iterator[tuple[str, Tensor]]:
        """What evaluation uses, by the same names; nothing where nothing is averaged."""
        if self.average is not None:
            averaged = self.average.named()
            yield from ((name, averaged.get(name, tensor)) for name, tensor in self.named_state())

    def digest(self) -> str:
        """The digest of weights and buffers."""
        return digest(entries_of_tensors(self.named_state()))

    def state_digest(self, step: int) -> str:
        """The digest of everything that training goes on from."""
        self.rewind()
        optimizer = optim.named_state(self.optimizer, self.model).items()
        return state_digest(self.named_state(), optimizer, self.named_average(), step, self._kept().items())

    def _kept(self) -> dict[str, Tensor]:
        """What a script keeps besides model and optimizer."""
        return {} if self._given is None else self._given.kept()

    def probe(self, batch: Batch, seed: int) -> str:
        """The state digest after one leaf and one update from the initial state, to which this returns. Whoever has
        another one would give the run other bits."""
        before = self.copy_state()
        vector = self.gradient(batch, seed, 0)
        self.apply(vector, 0)
        self.pool.give(vector)
        found = self.state_digest(1)
        self.load(before)
        self.spans.take()
        self.spans.take_events()
        return found

    def num_bytes(self) -> int:
        """About the size of a checkpoint: weights and buffers, an optimizer with so many numbers for each weight, and
        the average."""
        slots = optim.NUM_SLOTS[self.recipe.optimizer.name] if self._given is None else max(optim.NUM_SLOTS.values())
        copies = 1 + slots + (self.average is not None)
        return copies * sum(tensor.numel() * tensor.element_size() for _, tensor in self.named_state())

    def copy_state(self) -> State:
        """Contiguous copies in the memory of the host.

        It is the state at the start of the step, also when a leaf has left its marks on the statistics.
        """

        def copy(tensor: Tensor) -> Tensor:
            return tensor.detach().to("cpu", copy=True).contiguous()

        trained = self._copied(copy)
        average = {name: copy(tensor) for name, tensor in self.named_average()}
        kept = {name: copy(tensor) for name, tensor in self._kept().items()}
        return State(trained.model, trained.optimizer, list(self.tally), average, kept)

    def mark(self) -> State:
        """What `update` changes, as it is at the start of the step, in the memory of the device."""
        return self._copied(lambda tensor: tensor.detach().clone())

    def _copied(self, copy: Callable[[Tensor], Tensor]) -> State:
        self.rewind()
        model = {name: copy(tensor) for name, tensor in self.named_state()}
        optimizer = {name: copy(tensor) for name, tensor in optim.named_state(self.optimizer, self.model).items()}
        return State(model, optimizer)

    def start(self) -> str | None:
        """Take the weights from the file that the recipe names, if it names one; what the user is to know of them."""
        if self.recipe.init is None or self.recipe.init_sha256 is None:
            return None
        path, sha256 = Path(self.recipe.init), self.recipe.init_sha256
        state, note = initial.start(self.model, self.num_classes, path, sha256)
        self.load(state)
        return note

    def load(self, state: State) -> None:
        """Go on from this state; names and shapes have been checked by whoever read it."""
        self.return_to(state)
        if self.average is not None:
            self.average.load(state.average)
        self.tally = list(state.tally)
        if self._given is not None:
            self._given.restore(state.script)

    def return_to(self, state: State) -> None:
        """Undo every `update` since this state; the moving average and the tally know nothing of them."""
        with torch.no_grad():
            for name, tensor in self.named_state():
                tensor.copy_(state.model[name])
        self.adopt_buffers()
        optim.load_state(self.optimizer, self.model, state.optimizer)
