"""What training goes on from: a checkpoint holds it, a joiner copies it, a verification compares and keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.digest import digest, entries_of_tensors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class State:
    """A copy, in the memory of the host, that training does not touch any more."""

    model: dict[str, Tensor]
    """Weights and buffers by name."""
    optimizer: dict[str, Tensor]
    tally: list[list[float]] = field(default_factory=list)
    """Loss and hits of every step since the last row of metrics: whoever writes the next row must know all of them. It
    is not in the digest, which is of what is learnt."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """The moving average of what is in `model`, by the same names; empty where there is none."""


NamedTensors = Iterable[tuple[str, "Tensor"]]


def state_digest(model: NamedTensors, optimizer: NamedTensors, average: NamedTensors, step: int) -> str:
    """The digest of weights, buffers, optimizer, moving average and step."""
    entries = entries_of_tensors(model)
    entries += entries_of_tensors(optimizer, "optimizer/") + entries_of_tensors(average, "average/")
    return digest(entries, also=f"step {step}")
