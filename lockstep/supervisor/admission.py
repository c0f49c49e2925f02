"""Who may take part: processes whose arithmetic is that of the run, and that could set themselves up. What differs is
in `probes`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import events as e
from lockstep.supervisor import probes

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def check_probes(machine: Machine, ids: list[int]) -> list[e.Action]:
    """Refuse those whose arithmetic is not that of the run, or mark the run as mixed."""
    actions: list[e.Action] = []
    for id_ in ids:
        mine = machine.workers[id_].probe
        if machine.probe is None or mine is None or mine.digest == machine.probe.digest:
            continue
        what = probes.describe_difference(mine, machine.probe, machine.own_code)
        is_guest = bool(machine.workers[id_].host)
        if machine.allow_mixed:
            actions += [
                machine.record("mixed", worker=id_, what=what),
                e.Warn(f"worker {id_} computes other bits than this run: {what}; --allow-mixed lets it take part"),
            ]
            continue
        actions += refuse(machine, id_, f"it computes other bits than this run: {what}")
        if not machine.workers and not is_guest:
            sentence = f"worker {id_} computes other bits than this run: {what}; {probes.advice(machine.own_code)}"
            return actions + machine.end(e.Outcome("failed", None, sentence, id_, user=True))
    return actions


def refuse(machine: Machine, worker: int, why: str) -> list[e.Action]:
    """Go on without a process that cannot take part; another one like it could not either, so none is started."""
    where = f" on {host}" if (host := machine.workers[worker].host) else ""
    machine.drop(worker)
    machine.num_workers -= 1
    if not host:  # where that is, others may join
        machine.min_workers = min(machine.min_workers, machine.num_workers)
    return [
        machine.record("refused", worker=worker, what=why),
        e.Warn(f"worker {worker}{where} is refused, because {why}" + ("; the others go on" if machine.workers else "")),
        e.Kill(worker),
    ]


def is_dispensable(machine: Machine, worker: int) -> bool:
    """A process that has not come so far as to be a member, while others are, or may be."""
    return worker not in machine.members and (bool(machine.members) or bool(machine.workers[worker].host))
