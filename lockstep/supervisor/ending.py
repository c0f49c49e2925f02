"""Checkpoints, and how a job ends: finished, stopped, or doomed. Which checkpoints are safe is in `saving`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import events as e
from lockstep.supervisor import serving
from lockstep.supervisor.observer import Good
from lockstep.supervisor.saving import RETRY_SECONDS, Remedy

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def end_after(machine: Machine, id_: int, how: str) -> list[e.Action]:
    """Whoever started the processes ends the others too, or starts all of them anew: save what there is."""
    if machine.stopping is None and machine.doom is None:
        machine.doom = e.Outcome("failed", None, how, id_, died=True)
    if machine.generation is None or not machine.saving.required:
        return machine.end(machine.doom or e.Outcome("stopped", None, machine.stopping or ""))
    return ask_for_checkpoint(machine, "stop")


def checkpointed(machine: Machine, event: e.Checkpointed) -> list[e.Action]:
    if not machine.saving.written(event):
        return [e.DiscardCheckpoint(event.name, event.digest)]
    machine.ground.reach(event.step)
    machine.ground.keep(event.step, machine.useful_seconds, is_stored=True)
    keep: list[e.Action] = [e.KeepCheckpoint(event.step, event.name, event.digest)]
    if event.reason == "stop":
        return keep + machine.end(machine.doom or e.Outcome("stopped", event.digest, machine.stopping or ""))
    if machine.observer is not None and event.step < machine.saving.last_step:  # the workers evaluate the last one
        machine.observer.offer(Good(event.step, event.name))
        keep += machine.ask_evaluator(machine.observer)
    return keep + end_if_finished(machine)


def checkpoint_failed(machine: Machine, event: e.CheckpointFailed, now: float) -> list[e.Action]:
    text = f"the checkpoint of step {event.step} could not be written: {event.error}"
    match machine.saving.failed(event, now):
        case Remedy.GIVE_UP if machine.doom is not None:
            return [e.Warn(text), *machine.end(machine.doom)]
        case Remedy.GIVE_UP:
            when = "training is done" if event.reason != "stop" else f"stopping on {machine.stopping}"
            return machine.fail(f"{when}, but {text}")
        case Remedy.AT_ONCE:
            return [e.Warn(f"{text}; trying again"), *ask_for_checkpoint(machine, "final")]
        case Remedy.LATER:
            return [e.Warn(f"{text}; training goes on, and it is tried again in {RETRY_SECONDS:.0f} s")]


def end_if_finished(machine: Machine) -> list[e.Action]:
    """The job is finished when every member is, with one digest, and the last checkpoint is safe."""
    members = machine.members
    if machine.forming is not None or not members or any(id_ not in machine.finished for id_ in members):
        return []
    digests = {machine.finished[id_] for id_ in members}
    if machine.servers_hold_state and machine.lost_servers:
        digests = {machine.finished[members[0]]}  # the others may have got theirs before a server was lost, or after
    if len(digests) > 1:
        listing = ", ".join(f"worker {worker}: {digest[:12]}" for worker, digest in sorted(machine.finished.items()))
        return machine.fail(f"the replicas differ at the end, which must not happen ({listing})")
    if not machine.saving.is_complete:
        return [] if machine.saving.asked in ("final", "stop") else ask_for_checkpoint(machine, "final")
    return [] if machine.is_observing() else machine.end(e.Outcome("finished", digests.pop()))


def stop(machine: Machine, event: e.StopRequested) -> list[e.Action]:
    is_unplaced = any(not worker.is_placed for worker in machine.workers.values())
    waits_for_room = is_unplaced and not machine.members and not serving.have_kept(machine)
    if machine.stopping is not None or not machine.workers or waits_for_room or not machine.saving.required:
        # Asked twice, or nobody is there who could write a checkpoint, or there is nothing to save: at once.
        return machine.end(e.Outcome("stopped", None, event.reason))
    machine.stopping = event.reason
    machine.min_workers = 1  # whoever is there can write it
    return ask_for_checkpoint(machine, "stop") + machine.go_on_if_enough()


def end_if_in_vain(machine: Machine) -> list[e.Action]:
    """A job that stops waits for nobody who finds no room, and would only load what is stored already."""
    if machine.stopping is None or machine.outcome is not None or machine.members or serving.have_kept(machine):
        return []
    if any(worker.is_placed for worker in machine.workers.values()) and serving.are_placed(machine):
        return []
    return machine.end(machine.doom or e.Outcome("stopped", None, machine.stopping))


def nobody_left(machine: Machine, last: int) -> list[e.Action]:
    """All are dead, and there will be no others: that is a failure, unless the job was to end anyhow."""
    if machine.stopping is not None and machine.doom is None:
        return machine.end(e.Outcome("stopped", None, machine.stopping))
    causes = machine.streak.causes
    first = causes[0] if causes else "nobody is left who has the verified state"
    cause = f"all workers are dead; the first cause: {first}"
    return machine.end(e.Outcome("failed", None, cause, last, died=True))


def ask_for_checkpoint(machine: Machine, reason: str) -> list[e.Action]:
    """Ask the first member; whoever is first after it dies is asked again. Where nothing is trained, nothing is
    to be saved."""
    if not machine.saving.required:
        return []
    machine.saving.ask("stop" if machine.stopping or machine.doom else reason)
    return [e.Send(id_, {"type": "checkpoint", "reason": machine.saving.asked}) for id_ in machine.members[:1]]
