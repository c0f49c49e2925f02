"""What whoever watches a job is told of deaths and joins, in a sentence each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import events as e
from lockstep.supervisor import serving

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine

MOST_NAMED = 4
"""Of more workers than these only the number is told."""


def aftermath(machine: Machine) -> str:
    """How a job goes on without the dead; their replacements have been started, if there are to be any."""
    if machine.members:
        return "the others go on"
    if not machine.workers or (machine.stopping is not None and not machine.servers_hold_state):
        return "the others go on" if any(one.is_placed for one in machine.workers.values()) else "nobody is left"
    if machine.generation is None:
        return "another one is started" if machine.replace else "the others go on"
    if serving.have_kept(machine):
        return "nobody is left: new workers take what the servers have"
    verified = None if machine.verification is None else machine.verification.verified
    step = machine.ground.newest_stored(verified)
    where = f"the checkpoint of step {step}" if step else "the start"
    return f"nobody is left: new workers are started, and go back to {where}"


def joined(new: list[int], num_workers: int, step: int, steps_again: int) -> e.Tell:
    """Who has come to those who were there; after everyone was lost, also where they begin."""
    if len(new) > MOST_NAMED:
        who = f"{len(new)} workers have joined"
    elif len(new) > 1:
        who = f"workers {', '.join(map(str, new[:-1]))} and {new[-1]} have joined"
    else:
        who = f"worker {new[0]} has joined"
    again = "1 step is" if steps_again == 1 else f"{steps_again} steps are"
    back = f", back at step {step}: {again} done again" if steps_again else ""
    return e.Tell(f"{who}: {count(num_workers)}{back}")


def count(num_workers: int) -> str:
    return "1 worker" if num_workers == 1 else f"{num_workers} workers"
