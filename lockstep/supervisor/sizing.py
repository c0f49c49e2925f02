"""How many workers there are to be: a user says it, and hosts come and go. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import events as e
from lockstep.supervisor import telling

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def resize(machine: Machine, event: e.Resize) -> list[e.Action]:
    machine.num_workers = event.workers
    machine.min_workers = min(machine.min_workers, event.workers)  # others do not come any more
    machine.causes.append("resize")
    actions: list[e.Action] = [
        machine.record("resize", workers=event.workers, **({} if event.here is None else {"here": event.here})),
        e.Tell(f"`lockstep resize`: {telling.count(event.workers)} from now on"),
    ]
    members = machine.members
    # Members stay before those who are ready, and those before the ones that have only been started.
    by_use = sorted(machine.workers, key=lambda id_: (id_ not in members, machine.workers[id_].address is None, id_))
    surplus = by_use[event.workers :]
    for worker in surplus:
        machine.drop(worker)
        actions.append(e.Kill(worker))
    return actions + (machine.propose() if surplus else machine.start())


def others(machine: Machine) -> list[e.Action]:
    """Those who take the place of the lost. None when the job stops: they would only load what is stored already, but
    where servers have more."""
    if not machine.replace or len(machine.finished) >= machine.num_workers:
        return []
    return [] if machine.stopping is not None and not machine.servers_hold_state else machine.start()


def join(machine: Machine, event: e.Joined) -> list[e.Action]:
    """As many more workers as there are leaves for; beyond that the room is spare."""
    wanted = machine.num_workers if machine.replace else len(machine.workers)
    machine.num_workers = min(wanted + event.slots, machine.num_leaves)
    return [machine.record("host", host=event.host, what="joined", slots=event.slots), *machine.start()]


def leave(machine: Machine, event: e.Left) -> list[e.Action]:
    """Its workers are replaced only where there was room to spare. A loss is a death, but never one of a crash
    loop; if nobody is left, the next host that joins goes on."""
    gone = [id_ for id_ in event.workers if id_ in machine.workers]
    machine.num_workers = min(machine.num_workers, event.room)
    waiting = [id_ for id_, worker in machine.workers.items() if not worker.is_placed and id_ not in gone]
    gone += waiting[: max(0, len(machine.workers) - len(gone) - machine.num_workers)]
    actions: list[e.Action] = [machine.record("host", host=event.host, what="lost" if event.is_loss else "left")]
    was_member = not set(gone).isdisjoint(machine.members)
    awaited = machine.forming is not None and not machine.forming.awaited.isdisjoint(gone)
    dead = [id_ for id_ in gone if event.is_loss and machine.workers[id_].address is not None]
    for id_ in gone:
        if id_ in dead:
            machine.losses.deaths += 1
            how = f"was lost with its host {event.host}"
            actions.append(machine.record("death", worker=id_, role="worker", how=how))
        machine.drop(id_)
        actions.append(e.Kill(id_))
    if gone:
        machine.causes.append("death" if event.is_loss else "leave")
        started = others(machine)
        for id_ in dead:
            actions.append(e.Tell(f"worker {id_} was lost with its host {event.host}; {telling.aftermath(machine)}"))
        actions += started
        actions += machine.go_on(was_member, awaited)
    return actions
