"""Evaluations and verifications as members report them, and what follows. What they mean is in `scores` and
`verification`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.supervisor import ending
from lockstep.supervisor import events as e
from lockstep.supervisor.scores import Contradiction
from lockstep.supervisor.verification import Agreed, Disputed, Undecided, Unnamed, Verdict, Verification, Wrong

if TYPE_CHECKING:
    from lockstep.supervisor.machine import Machine


def evaluation(machine: Machine, event: e.Evaluation) -> list[e.Action]:
    before = machine.scores.best
    try:
        figures = machine.scores.add(event.step, event.leaf, event.result, event.num_leaves)
    except Contradiction as problem:
        # With verification it will be found whose bits were wrong, and these figures dropped.
        # A server that lost its weights in the midst of an evaluation leaves different ones to different workers.
        is_bug = machine.verification is None and not (machine.servers_hold_state and machine.lost_servers)
        return machine.fail(str(problem)) if is_bug else []
    if figures is None:
        return []
    improved = machine.scores.best != before
    apart = ("confusion", *machine.scores.marks)  # of use to readers of rows alone
    shown = {name: value for name, value in figures.items() if name not in apart}
    return [
        e.Record({"kind": "eval", "step": event.step, **figures}),
        # Asked for before the figures are sent, so that it is this step's state that is written.
        *(ending.ask_for_checkpoint(machine, "best") if improved else []),
        *machine.send_all({"type": "evaluated", "step": event.step, "best": machine.scores.best, "figures": shown}),
    ]


def verification(machine: Machine, event: e.Verify | e.Answer) -> list[e.Action]:
    if machine.verification is None or machine.generation is None or machine.forming is not None:
        return []
    if event.number != machine.generation.number:
        return []
    if isinstance(event, e.Verify):
        verdict = machine.verification.report(event.worker, event.report, machine.members)
    else:
        verdict = machine.verification.answer(event.worker, event.answer, machine.members)
    return [] if verdict is None else verdict_of(machine, machine.verification, verdict, event.step)


def verdict_of(machine: Machine, verification: Verification, verdict: Verdict, step: int) -> list[e.Action]:
    match verdict:
        case Agreed():
            verification.begin(step, machine.members, (machine.scores.evaluated, machine.scores.best))
            machine.ground.keep(step, machine.useful_seconds, is_stored=False)
            return [e.Trust(step), *machine.send_all({"type": "verified", "step": step})]
        case Disputed():
            return machine.send_all(verdict.message)
        case Undecided():
            return machine.fail(f"at step {step} {verdict.sentence}: look at the hardware")
        case Unnamed():
            machine.going_back = True
            machine.causes.append("corruption")
            why = "the states of the members differ, and it cannot be said whose is wrong"
            row = {"kind": "corruption", "worker": None, "why": why, "step": step}
            return [e.Record(row), *machine.propose()]
        case Wrong():
            machine.going_back = True
            actions: list[e.Action] = []
            for id_, why in verdict.members.items():
                actions.append(e.Record({"kind": "corruption", "worker": id_, "why": why, "step": step}))
                if id_ in machine.workers and machine.outcome is None:
                    how = f"computed wrong bits ({why}) and was expelled; back to step {verification.verified}"
                    actions += machine.remove(id_, how, kill=True)
            return actions
