"""What time brings: signs of life, processes that are stuck, members that cannot reach each other. Who that is, is in
`watch`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import ending, observing, serving
from lockstep.supervisor import events as e

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def heartbeat(machine: Machine, event: e.Heartbeat, now: float) -> list[e.Action]:
    machine.watch.heard(event.worker, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
    if event.worker in machine.members:
        machine.streak.note_progress(event.step)
        machine.ground.reach(event.step)
    return []


def tick(machine: Machine, now: float) -> list[e.Action]:
    actions: list[e.Action] = []
    for id_, how in machine.watch.stuck(machine.placed, now).items():
        if id_ in machine.workers:  # and not gone with one that was removed before
            actions += machine.remove(id_, how, kill=True)
        elif id_ in machine.servers:
            actions += serving.remove(machine, id_, how, kill=True)
        elif id_ in machine.evaluators and machine.observer is not None:
            actions += observing.lose(machine, machine.observer, id_, f"it {how}", for_good=False)
        if machine.outcome is not None:
            return actions
    if machine.watch.has_unexplained_reports(now):
        actions += resolve_reports(machine)
    if machine.saving.is_retry_due(now):
        actions += ending.ask_for_checkpoint(machine, "retry")
    return actions


def lost_peer(machine: Machine, event: e.LostPeer, now: float) -> list[e.Action]:
    if machine.generation is not None and event.number == machine.generation.number and machine.forming is None:
        machine.watch.report(event.worker, event.peer, now)
    return []


def outrun(machine: Machine, event: e.Outrun) -> list[e.Action]:
    """It copies the state like one that joins, and for that there must be a new generation."""
    if machine.generation is None or event.number != machine.generation.number or machine.forming is not None:
        return []
    machine.causes.append("straggler")
    return machine.propose()


def resolve_reports(machine: Machine) -> list[e.Action]:
    """Nobody died, and yet members cannot reach each other: the one reported most goes, on a tie the newest."""
    worst = machine.watch.most_reported([*machine.members, *machine.servers])
    if worst in machine.servers and 2 * len(accusers := machine.watch.accusers(worst)) < len(machine.members):
        worst = max(accusers)  # most of the others reach it
    machine.watch.clear_reports()
    if worst in machine.servers:
        return serving.remove(machine, worst, "could not be reached by the workers", kill=True)
    if worst is None or len(machine.members) == 1:
        return machine.propose()
    return machine.remove(worst, "could not be reached by its peers", kill=True)
