"""Exact evaluation by a script's own function: every example once, the leaves of the test set shared by the workers.

Sums of integers are integers, other sums are added in float64 by leaf index. Nobody's state is copied meanwhile: the
script is in the middle of its loop, and who joins begins with a whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lockstep import generators
from lockstep.data.order import Samples
from lockstep.data.source import in_order
from lockstep.errors import UserError
from lockstep.evaluate import LeafResult, combine
from lockstep.generation import Generation
from lockstep.goal import TAKEN
from lockstep.philox import leaf_seed
from lockstep.script.loader import Reader
from lockstep.worker import Worker, message_of

Score = Callable[..., dict[str, Any]]
SEED_STEP = -2
"""In the place of a step, in the seeds of evaluation leaves."""


class Evaluation:
    """One evaluation of a model."""

    def __init__(self, model: torch.nn.Module, reader: Reader, score: Score, seed: int) -> None:
        self._model = model
        self._reader = reader
        self._score = score
        self._seed = seed
        self.num_leaves = -(-len(reader.parts) // reader.parts.batch_size)

    def whole(self) -> dict[str, Any]:
        """All of it, by this process."""
        leaves = range(self.num_leaves)
        return combine({leaf: self.leaf(leaf, leaves[leaf + 1 :]) for leaf in leaves})

    def shared(self, worker: Worker, done: int) -> dict[str, Any]:
        """My part of it, then the figures of the whole. A new generation shares it out anew."""
        membership = worker.membership
        while done not in membership.evaluations:
            generation = membership.settle()
            if generation.evaluated >= done:  # by workers that have died since, and nobody remembers the figures
                return self.whole()
            self._share(worker, done, generation)
            worker.reporter.at(done, None)
            membership.wait(lambda now=generation: done in membership.evaluations or membership.has_left(now))  # type: ignore[misc]
        message = membership.evaluations.pop(done)
        worker.evaluated, worker.best = done, message["best"]
        return {name: value for name, value in message["figures"].items() if not name.startswith("best_")}

    def _share(self, worker: Worker, done: int, generation: Generation) -> None:
        begins = generation.step == done  # then some may not have come here yet, and wait for us to go on
        known = generation.evaluated_leaves if begins else ()
        ranks = generation.up_to_date if begins else list(range(len(generation)))
        rank = generation.rank(worker.membership.id)
        mine = range(self.num_leaves)[ranks.index(rank) :: len(ranks)] if rank in ranks else range(0)
        for at, leaf in enumerate(mine):
            if worker.membership.has_left(generation):
                return
            if leaf not in known:
                worker.reporter.at(done, leaf)
                result = message_of(self.leaf(leaf, mine[at + 1 :]))
                told = {"type": "evaluation", "step": done, "leaf": leaf, "leaves": self.num_leaves}
                worker.membership.send({**told, **result})

    def leaf(self, leaf: int, upcoming: range) -> LeafResult:
        """The sums of one leaf."""
        batch = self._reader.take(leaf, self._samples, upcoming)
        generators.seed(leaf_seed(self._seed, SEED_STEP, leaf))
        with evaluating(self._model):
            sums = self._score(*batch) if isinstance(batch, list | tuple) else self._score(batch)
        return _result(len(self._samples(leaf)), sums)

    def _samples(self, leaf: int) -> Samples:
        first, size = leaf * self._reader.parts.batch_size, len(self._reader.parts)
        return in_order(first, min(first + self._reader.parts.batch_size, size))


FIGURES = ("loss", "top1", "top5")
"""Sums that have a meaning of their own."""


def _result(count: int, sums: Any) -> LeafResult:
    """What a script's function returned; a UserError if it is not what it must be."""
    if not isinstance(sums, dict) or "loss" not in sums:
        raise UserError(
            "the function of job.evaluate returns sums over the examples by name, 'loss' among them, such as "
            "{'loss': loss, 'top1': hits}"
        )
    found = {str(name): value.item() if hasattr(value, "item") else value for name, value in sums.items()}
    for name, value in found.items():
        is_taken = (name in TAKEN and name not in FIGURES) or name.startswith("best_")
        if not isinstance(value, int | float) or is_taken:
            raise UserError(f"job.evaluate cannot take {name!r}: give one number for each name, and no name of a row")
        if name in ("top1", "top5") and not isinstance(value, int):
            raise UserError(f"{name!r} counts hits, so it must be a whole number, and not {value}")
    loss, top1, top5 = float(found.pop("loss")), found.pop("top1", None), found.pop("top5", None)
    return LeafResult(count, top1, top5, loss, sums=tuple(sorted(found.items())))


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """The model as it is used; afterwards every part of it is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
