"""What a server of `async` keeps and updates: weights, buffers and optimizer of the tensors that it owns.

The model and the optimizer are built as in a worker, so that any optimizer works; what others own is never updated.
"""

from __future__ import annotations

import torch
from safetensors.torch import save
from torch import Tensor

from lockstep import optim
from lockstep.exchange.flat import Vector
from lockstep.exchange.shares import Share, shares
from lockstep.replica import Replica

UNKNOWN = (1 << 32) - 1
"""The version that a push names when its weights are from another server than it goes to."""


class Shard:
    """The updates of one leaf after the other, as they come.

    A leaf's gradient makes an update with 1/V of the step's learning rate: V updates to a step move the weights as far
    as one with the mean of V gradients, in SGD, with any momentum, and in optimizers that normalise.
    """

    def __init__(self, replica: Replica, num_servers: int, slot: int, first: int) -> None:
        self._replica = replica
        self._layout = replica.layout
        self.share: Share = shares(replica.layout, num_servers)[slot]
        self._num_leaves = replica.recipe.leaves
        self._first_slot = slot == 0
        self._vector = Vector(replica.layout, replica.device.torch)
        self._first_integers: list[Tensor] | None = None
        self._rate: float | None = None
        self.version = 0
        """Updates since this process began."""
        self.floor = first
        """The steps before this one are done, as far as is known here."""
        self._applied: dict[int, set[int]] = {}
        """The leaves of later steps that have been applied."""
        self._own_parameters()

    def _own_parameters(self) -> None:
        """The optimizer sees nothing but what is owned."""
        replica = self._replica
        mine: set[Tensor] = set()
        for (name, parameter), view in zip(replica.model.named_parameters(), self._vector.gradients, strict=True):
            if name in self.share.names:
                mine.add(parameter)
                parameter.grad = view
        for group in replica.optimizer.param_groups:
            group["params"] = [one for one in group["params"] if one in mine]
        for other in set(replica.optimizer.state) - mine:
            del replica.optimizer.state[other]

    def advance(self, floor: int) -> int:
        """Everything before a step has been applied by whoever was there. The number of updates that were lost here,
        with a server in whose place this one is."""
        lost = 0
        while self.floor < floor:
            lost += self._num_leaves - len(self._applied.pop(self.floor, ()))
            self.floor += 1
        return lost

    def push(self, step: int, leaf: int, values: Tensor) -> Vector | None:
        """Apply a leaf's gradient, once; None if that has been done. Valid until the next one: counts and integers."""
        applied = self._applied.setdefault(step, set()) if step >= self.floor else {leaf}
        if leaf in applied:
            return None
        applied.add(leaf)
        self._read(values)
        self._update(step)
        self.version += 1
        if len(applied) == self._num_leaves:
            self._finish(step)
        return self._vector

    def _read(self, values: Tensor) -> None:
        flat, at = self._vector.flat, 0
        for start, stop in (self.share.gradients, self.share.statistics, (self._layout.integers_start, len(flat))):
            flat[start:stop] = values[at : at + stop - start]
            at += stop - start
        if self._first_integers is None:
            self._first_integers = [view.clone() for view in self._vector.integers]
        self._replica.check_integers(self._first_integers, self._vector)

    @torch.no_grad()
    def _update(self, step: int) -> None:
        replica = self._replica
        rate = replica.learning_rate(step) / self._num_leaves
        if not replica.recipe.optimizer.momentum_correction and self._rate and rate > 0:
            optim.scale_momentum(replica.optimizer, self._rate / rate)
        self._rate = rate
        optim.set_learning_rate(replica.optimizer, rate)
        replica.optimizer.step()
        start, stop = (bound - self._layout.statistics_start for bound in self.share.statistics)
        replica.statistics[start:stop].add_(self._vector.statistics[start:stop], alpha=1.0 / self._num_leaves)
        replica.put_statistics(replica.statistics)

    def _finish(self, step: int) -> None:
        if self._first_slot:
            self._replica.advance_integers(self._vector.integers)
        if self._replica.average is not None:
            self._replica.average.update(range(step, step + 1))

    def weights(self) -> Tensor:
        """What a worker needs for a leaf: a copy, since updates go on while it is sent."""
        start, stop = (bound - self._layout.statistics_start for bound in self.share.statistics)
        return torch.cat([self._replica.weights[slice(*self.share.gradients)], self._replica.statistics[start:stop]])

    def packed(self, with_optimizer: bool, tally: list[list[float]]) -> bytes:
        """Everything that is kept here, by name; the first server has the integer buffers and the tally as well."""
        replica = self._replica
        integers = {place.name for place in self._layout.integers} if self._first_slot else set()
        names = self.share.names | integers
        named = {f"model/{name}": tensor for name, tensor in replica.named_state() if name in names}
        named |= {f"average/{name}": tensor for name, tensor in replica.named_average() if name in names}
        if with_optimizer:
            state = optim.named_state(replica.optimizer, replica.model)
            named |= {f"optimizer/{name}": tensor for name, tensor in state.items()}
        if self._first_slot:
            named["tally"] = torch.tensor(tally, dtype=torch.float64)
        return save(
            {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in named.items()}
        )
