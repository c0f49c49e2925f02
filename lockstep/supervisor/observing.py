"""The evaluator beside the workers: nobody waits for it, and training goes on without it. What it is at is in
`observer`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import ending
from lockstep.supervisor import events as e
from lockstep.supervisor.observer import Observer

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def hear(machine: Machine, observer: Observer, id_: int, event: e.Event, now: float) -> list[e.Action]:
    match event:
        case e.Placed():
            machine.evaluators[id_].is_placed = True
        case e.Ready():
            machine.evaluators[id_].address = event.address
            return machine.ask_evaluator(observer)
        case e.Heartbeat():
            machine.watch.heard(id_, (event.step, event.leaf, event.phase), event.leaf_seconds, now)
        case e.Evaluation():
            results = observer.add(event.step, event.leaf, event.result)
            if results is not None:
                row = {"kind": "eval", "step": event.step, **machine.scores.rate(event.step, results)}
                return [e.Record(row), *machine.ask_evaluator(observer), *ending.end_if_finished(machine)]
        case e.Raised():
            return lose(machine, observer, id_, event.message.strip().splitlines()[-1], for_good=True)
        case e.Gone():
            return lose(machine, observer, id_, f"it {event.how}", for_good=False)
    return []


def lose(machine: Machine, observer: Observer, id_: int, why: str, for_good: bool) -> list[e.Action]:
    del machine.evaluators[id_]
    machine.watch.forget(id_)
    goes_on = observer.fail() and not for_good
    if not goes_on:
        machine.observer = None
    text = f"evaluator {id_} is gone ({why})" + ("" if goes_on else "; training goes on without one")
    return [e.Kill(id_), e.Warn(text), *(machine.start() if goes_on else []), *ending.end_if_finished(machine)]
