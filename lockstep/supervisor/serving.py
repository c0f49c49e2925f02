"""Servers: they have no state, unless it is said, so whoever dies is replaced, and its slices move. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import events as e

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def hear(machine: Machine, server: int, event: e.Event, now: float) -> list[e.Action]:
    match event:
        case e.Placed():
            machine.servers[server].is_placed = True
        case e.Ready():
            machine.servers[server].address = event.address
            machine.causes.append("server")
            return machine.propose()
        case e.Heartbeat():
            machine.watch.heard(server, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
        case e.Raised():
            return machine.end(e.Outcome("failed", None, event.message, server, event.user))
        case e.Gone() if event.is_death:
            return remove(machine, server, event.how)
        case e.Gone():
            return machine.end(e.Outcome("failed", None, event.how, server, died=True))
    return []


def remove(machine: Machine, server: int, how: str, kill: bool = False) -> list[e.Action]:
    """The slices of a server that is gone move to the others; without any, the workers add up by themselves."""
    del machine.servers[server]
    machine.watch.forget(server)
    actions = machine.mourn(server, "server", how, kill)
    if machine.outcome is not None:
        return actions
    machine.lost_servers += 1
    if machine.servers_hold_state and not machine.replace:
        hint = "; without --no-replace it is replaced" if machine.is_elastic else ""
        cause = f"{how}, and with it a part of the weights{hint}"
        return actions + machine.end(e.Outcome("failed", None, cause, server, died=True))
    was_member = machine.generation is not None and server in [member.id for member in machine.generation.servers]
    return actions + (machine.propose() if was_member or not machine.members else [])


def have_kept(machine: Machine) -> bool:
    """Whether a server of the newest generation lives and holds state, so that nothing is lost with the workers."""
    known = () if machine.generation is None else machine.generation.servers
    return machine.servers_hold_state and any(server.id in machine.servers for server in known)


def are_placed(machine: Machine) -> bool:
    """Whether none of them waits for room; a job does not begin without them."""
    return all(server.is_placed for server in machine.servers.values())
