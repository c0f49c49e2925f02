"""A step as a script's loop sees it: leaves to compute, the exchange, and where it is in the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch

from lockstep.errors import UserError
from lockstep.exchange.flat import Vector
from lockstep.objective import NOT_COUNTED
from lockstep.script.guard import Guard
from lockstep.script.training import Training
from lockstep.step import Leaf
from lockstep.worker import check_reduced


class ScriptStep:
    """One step of a loop of one's own; see `docs/own-loop.md`. Here it is the last of the example of `lockstep.job`:

    >>> step.index, step.epoch, step.ends_epoch, step.is_last, step.done
    (39, 9, True, True, True)
    """

    def __init__(self, training: Training, guard: Guard, batch: Callable[[Leaf], Any]) -> None:
        self._training = training
        self._step = training.step
        self._guard = guard
        self._batch = batch
        self._spans = training.replica.spans
        self._span = ExitStack()
        """The span that the script's own code is in, inside a leaf. Elsewhere it may take as long as it likes."""
        self._loss: torch.Tensor | None = None
        self._hits = NOT_COUNTED
        self._owes_exchange = False

    @property
    def index(self) -> int:
        """The number of steps before this one."""
        return self._step.index

    @property
    def done(self) -> bool:
        """Whether `p.grad` holds the mean over the whole batch."""
        return self._step.done

    @property
    def epoch(self) -> int:
        """The epoch of its first sample, from 0."""
        return self.index * self._training.recipe.global_batch // self._num_samples

    @property
    def ends_epoch(self) -> bool:
        """Whether the last sample of an epoch is in it."""
        batch, size = self._training.recipe.global_batch, self._num_samples
        return (self.index + 1) * batch // size > self.index * batch // size

    @property
    def is_last(self) -> bool:
        """Whether no step comes after it."""
        return self.index + 1 == self._training.last

    @property
    def _num_samples(self) -> int:
        script = self._training.recipe.script
        assert script is not None
        return script.num_samples

    def leaves(self) -> Iterator[Any]:
        """The batches of the leaves that are mine and not yet held, each to be computed with `backward`."""
        if self._owes_exchange:  # none would be left, and `while not step.done` would never end
            raise UserError(
                f"the leaves of step {self.index} were asked for again without an exchange: call step.exchange() after "
                "`for ... in step.leaves()`, inside `while not step.done`"
            )
        self._owes_exchange = True
        replica, worker = self._training.replica, self._training.worker
        for leaf in self._step.missing():
            if worker is not None:
                worker.reporter.at(leaf.step, leaf.index)
            self._guard.enter()
            with self._spans("data"):
                batch = self._batch(leaf)
            vector = replica.begin_leaf(leaf.seed)
            self._open("forward")
            yield batch
            self._span.close()
            self._hold(leaf, vector)
            self._guard.leave()

    def backward(self, loss: torch.Tensor, top1: torch.Tensor | int | None = None) -> None:
        """`loss.backward()`, with a loss that is the mean over the leaf; `top1` is how many of its samples were hit."""
        if not self._guard.is_in_leaf:
            raise UserError("step.backward was called outside a leaf: it belongs inside `for ... in step.leaves()`")
        self._open("backward")
        loss.backward()
        self._span.close()
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        self._hits = self._hits if top1 is None else float(top1)

    def exchange(self) -> None:
        """Add up what all workers hold. Afterwards either `done`, or a change of workers has left more leaves to me."""
        if self._guard.is_in_leaf:
            raise UserError("step.exchange was called inside a leaf: it belongs after `for ... in step.leaves()`")
        self._owes_exchange = False
        training, step = self._training, self._step
        if step.done:
            return
        if training.strategy.exchange(step) == "reduced":
            check_reduced(training.membership, training.replica, step)
            training.replica.show_gradients(step.reduced)
            rate = float(training.replica.optimizer.param_groups[0]["lr"])
            training.replica.learning_rate = lambda _: rate

    def _end(self) -> None:
        """The script has come to the end of the loop's body."""
        if not self.done:
            raise UserError(
                f"step {self.index} was left before it was done: its leaves and step.exchange() belong inside "
                "`while not step.done`"
            )
        self._guard.check()
        self._training.replica.adopt_buffers()

    def _open(self, name: str) -> None:
        self._span.close()
        self._span.enter_context(self._spans(name))

    def _hold(self, leaf: Leaf, vector: Vector) -> None:
        if self._loss is None:
            raise UserError(
                "a leaf ended without its loss: call step.backward(loss) in place of loss.backward(), once for a leaf"
            )
        replica = self._training.replica
        replica.collect_gradients(vector)
        replica.note_buffers(vector)
        vector.counts[0].copy_(self._loss)
        vector.counts[1].fill_(self._hits)
        vector.counts[2:].fill_(NOT_COUNTED)
        self._loss, self._hits = None, NOT_COUNTED
        self._step.hold(leaf, vector)
