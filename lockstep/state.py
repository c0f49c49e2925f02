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
    script: dict[str, Tensor] = field(default_factory=dict)
    """What a script of the user's own keeps besides, such as its scheduler, see `lockstep.script.keeping`."""

    def named(self) -> dict[str, Tensor]:
        """All of it as one table, for files and for the network."""
        import torch

        parts = {"model": self.model, "optimizer": self.optimizer, "average": self.average, "script": self.script}
        tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
        return {**tensors, "tally": torch.tensor(self.tally, dtype=torch.float64)}

    @staticmethod
    def from_named(named: dict[str, Tensor]) -> State:
        def part(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(f"{name}/"): t for key, t in named.items() if key.startswith(f"{name}/")}

        return State(part("model"), part("optimizer"), named["tally"].tolist(), part("average"), part("script"))


NamedTensors = Iterable[tuple[str, "Tensor"]]


def state_digest(
    model: NamedTensors, optimizer: NamedTensors, average: NamedTensors, step: int, script: NamedTensors = ()
) -> str:
    """The digest of weights, buffers, optimizer, moving average, step, and what a script keeps besides."""
    entries = entries_of_tensors(model)
    entries += entries_of_tensors(optimizer, "optimizer/") + entries_of_tensors(average, "average/")
    entries += entries_of_tensors(script, "script/")
    return digest(entries, also=f"step {step}")
