"""The machine for a plan, put together of its parts."""

from __future__ import annotations

from lockstep import inputs, references, strategies
from lockstep.engines import ENGINES
from lockstep.goal import own_goal
from lockstep.supervisor.archive import stored_probe
from lockstep.supervisor.machine import Machine
from lockstep.supervisor.observer import Observer
from lockstep.supervisor.plan import Plan
from lockstep.supervisor.probes import OwnCode
from lockstep.supervisor.saving import Saving
from lockstep.supervisor.scores import Scores
from lockstep.supervisor.verification import Verification
from lockstep.supervisor.watch import Watch


def machine(plan: Plan, secret: str) -> Machine:
    job, trains, is_elastic = plan.job, not plan.evaluate_only, ENGINES[plan.job.engine].is_elastic
    return Machine(
        num_workers=job.workers,
        num_servers=plan.num_servers,
        servers_hold_state=strategies.STRATEGIES[job.strategy].servers_hold_state and trains,
        num_leaves=plan.recipe.leaves,
        secret=secret,
        saving=Saving(plan.last_step, required=trains and plan.first_step < plan.last_step),
        scores=Scores(
            plan.num_evaluation_leaves,
            plan.best,
            _evaluated(plan),
            marks=plan.marks,
            own=own_goal(plan.recipe),
        ),
        replace=job.replace and is_elastic,
        is_elastic=is_elastic,
        min_workers=job.min_workers,
        watch=Watch(job.patience),
        verification=Verification(plan.first_step) if job.verify_every and trains else None,
        probe=stored_probe(plan.directory) if trains else None,
        own_code=_own_code(plan),
        allow_mixed=job.allow_mixed,
        rounds=strategies.rounds(job, plan.num_steps),
        observer=Observer(plan.num_evaluation_leaves) if plan.has_evaluator else None,
    )


def _own_code(plan: Plan) -> OwnCode:
    """Without the metric, which no bit of the weights depends on."""
    names = {role: references.short(name) for role, name in inputs.own_code(plan.recipe).items() if role != "metric"}
    changed = inputs.changed(inputs.read(plan.directory.read_json("environment.json")))
    return OwnCode(tuple(names.values()), tuple(name for role, name in names.items() if role in changed))


def _evaluated(plan: Plan) -> int:
    """The last step whose evaluation need not be done again; a finished run is evaluated once more."""
    finished = plan.first_step == plan.last_step
    return -1 if plan.checkpoint is None or finished else plan.checkpoint.evaluated
