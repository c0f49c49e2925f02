"""How members that lack something get it when a generation begins.

Whoever is a step behind is sent the reduced vector of that step, and applies it itself. Whoever joins copies the state,
a slice from each member that has it: all of them hold the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from safetensors.torch import load, save

from lockstep.exchange import tree
from lockstep.exchange.group import Group
from lockstep.replica import Replica
from lockstep.state import State
from lockstep.step import Step

CATCH_UP_TAG = 1 << 24
LENGTH_TAG, STATE_TAG = CATCH_UP_TAG + 1, CATCH_UP_TAG + 2
Abandoned = Callable[[], bool]


def receive_result(group: Group, step: Step, abandoned: Abandoned) -> None:
    """The reduced vector of the step that the others have applied already."""
    source = group.generation.up_to_date[0]
    group.post([], [(step.reduced.flat, source, CATCH_UP_TAG)])
    group.wait(abandoned)


def help_others(group: Group, replica: Replica, step: Step, abandoned: Abandoned) -> None:
    """Send what those behind and those who join lack."""
    generation = group.generation
    sources = generation.up_to_date
    sends = []
    if generation.behind and sources[0] == group.rank:
        # The vector still holds the last result: no slice of a newer one can exist before everyone has this one.
        sends += [(step.reduced.flat, generation.rank(id_), CATCH_UP_TAG) for id_ in generation.behind]
    if generation.joiners:
        packed = pack(replica, step)
        start, stop = tree.slices(packed.numel(), len(sources))[sources.index(group.rank)]
        for id_ in generation.joiners:
            if sources[0] == group.rank:
                length = torch.tensor([packed.numel()], device=packed.device)
                sends.append((length, generation.rank(id_), LENGTH_TAG))
            if stop > start:
                sends.append((packed[start:stop], generation.rank(id_), STATE_TAG))
    group.post(sends, [])
    group.wait(abandoned)


def receive_state(group: Group, replica: Replica, abandoned: Abandoned) -> torch.Tensor:
    """Copy the state: its length first, then a slice from each. Returns the last reduced vector."""
    sources = group.generation.up_to_date
    length = torch.zeros(1, dtype=torch.int64, device=replica.device.torch)
    group.post([], [(length, sources[0], LENGTH_TAG)])
    group.wait(abandoned)
    packed = torch.empty(int(length), dtype=torch.uint8, device=replica.device.torch)
    slices = tree.slices(packed.numel(), len(sources))
    receives = [
        (packed[start:stop], rank, STATE_TAG)
        for rank, (start, stop) in zip(sources, slices, strict=True)
        if stop > start
    ]
    group.post([], receives)
    group.wait(abandoned)
    return unpack(packed, replica)


def pack(replica: Replica, step: Step) -> torch.Tensor:
    """The whole state as bytes, the same on every up-to-date member.

    The last reduced vector belongs to it: the joiner may be the only one left who can give it to a member behind.
    """
    named = {**replica.copy_state().named(), "reduced": step.reduced.flat.cpu()}
    return torch.frombuffer(bytearray(save(named)), dtype=torch.uint8).to(replica.device.torch)


def unpack(packed: torch.Tensor, replica: Replica) -> torch.Tensor:
    named = load(packed.cpu().numpy().tobytes())
    replica.load(State.from_named(named))
    return named["reduced"]
