"""What a plan says to the engine, to the processes it starts, and to whoever watches. Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lockstep import device
from lockstep.config import Recipe
from lockstep.engines import Role, Site
from lockstep.engines.hosts import log_on
from lockstep.supervisor.plan import Plan


def title(plan: Plan) -> str:
    """What is about to run, and where its logs are."""
    recipe, job = plan.recipe, plan.job
    logs = plan.directory.path / "logs"
    if plan.evaluate_only:
        by = _counted(job.workers, "worker")
        return f"{plan.directory.name}: step {plan.last_step} is evaluated by {by}; logs in {logs}"
    cut = f"{plan.last_step} of " if plan.last_step != plan.num_steps else ""
    start = f" from step {plan.first_step}" if plan.first_step else ""
    workers = _counted(job.workers, "worker")
    if plan.num_servers:
        workers += f" and {_counted(job.servers, 'driver' if job.strategy == 'driver' else 'server')}"
    workers += " and an evaluator" if plan.has_evaluator else ""
    leaves = f"{_counted(recipe.leaves, 'leaf', 'leaves')} of {_counted(recipe.leaf_batch, plan.sample)}"
    steps = f"{cut}{_counted(plan.num_steps, 'step')}{start}"
    return f"{plan.directory.name}: {workers}, {leaves}, {steps}; logs in {logs}"


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def site(plan: Plan, note: Callable[[str], None]) -> Site:
    """What an engine must know before anything is started."""
    job = plan.job
    return Site(
        num_workers=job.workers,
        num_servers=plan.num_servers,
        evaluator=job.evaluator if plan.has_evaluator else "none",
        min_workers=job.min_workers or None,
        threads=plan.recipe.threads,
        uses_gpus=plan.recipe.device == "cuda",
        address=job.address,
        placement=job.placement,
        cpus_per_worker=job.cpus_per_worker or None,
        listen=job.listen,
        files=plan.files,
        note=note,
    )


def environment(recipe: Recipe, num_workers: int, role: Role, slot: int, assigns_devices: bool) -> dict[str, str]:
    """Variables that must be set before torch is imported; a GPU of its own, if the engine gives it none. That of the
    evaluator comes after those of the workers."""
    found = device.environment(recipe.threads, recipe.precision)
    if recipe.device == "cuda" and role != "server" and not assigns_devices:
        found |= device.one_gpu(slot if role == "worker" else num_workers + slot)
    return found


def log(plan: Plan, role: Role, id_: int, host: str) -> Path:
    """Where a process writes; named after what its user calls it, and after its host, if that is one that joined."""
    name: str = role
    if plan.evaluate_only:
        name = "evaluator"
    elif role == "server" and plan.job.strategy == "driver":
        name = "driver"
    return log_on(plan.directory.log(name, id_), host)
