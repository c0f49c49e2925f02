"""The commands that start, continue, evaluate and steer jobs, and the last lines that they print."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from lockstep.cli import options, reports
from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.api import Run


def train(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    display = progress.display(says_result=False)
    run = api.train(parsed.recipe, options.request(parsed), run=parsed.run, resume=parsed.resume, display=display)
    return _conclude(run, parsed.profile)


def launch(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    request, display = options.request(parsed), progress.display(says_result=False)
    run = api.launch(parsed.script, parsed.arguments, request, run=parsed.run, resume=parsed.resume, display=display)
    return _conclude(run, parsed.profile)


def resume(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    display = progress.display(says_result=False)
    return _conclude(api.resume(parsed.run, options.request(parsed), display=display), parsed.profile)


def evaluate(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress, runs, strictjson
    from lockstep.report import confusion

    if parsed.follow:
        return _follow(parsed)
    display = progress.display(says_result=parsed.json)
    run = api.evaluate_run(parsed.run, options.request(parsed), checkpoint=parsed.checkpoint, display=display)
    if run.evaluation is None:
        return run.exit_code
    if parsed.json:
        print(strictjson.dumps(runs.figures(run)))
        return run.exit_code
    _print_figures(run)
    if run.confusion is None:
        if parsed.confusion or parsed.per_class:
            print("there are no classes in these data, and nothing that could be taken for something else")
        return run.exit_code
    print(confusion.per_class_table(run.confusion, show_all=parsed.per_class))
    if parsed.confusion:
        print(confusion.matrix_table(run.confusion))
    return run.exit_code


ONCE = ("data", "eval_data", "hold_out", "checkpoint", "per_class", "confusion", "json")
"""Options of `evaluate` that mean nothing when a run is followed."""


def _follow(parsed: argparse.Namespace) -> int:
    from lockstep import api, progress

    for name in ONCE:
        if (given := getattr(parsed, name)) is not None and given is not False:  # 0 is a value
            raise UserError(f"--{name.replace('_', '-')} is for one evaluation: leave it out, or --follow")
    rows = api.follow_run(parsed.run, options.request(parsed), display=progress.display())
    if not rows:
        print(f"{parsed.run} ended without a checkpoint")
        return 0
    print(f"{len(rows)} checkpoints evaluated; {_describe_best(rows)}")
    return 0


def _describe_best(rows: list[dict[str, Any]]) -> str:
    from lockstep import goal

    best = goal.best_in(rows[-1])
    if best is None:
        return "none is the best, since what they are judged by was never a number"
    name, value = best
    step = next((row["step"] for row in rows if row[name] == value), rows[-1]["step"])
    return f"best {name} {goal.as_text(name, value)} at step {step}"


def stop(parsed: argparse.Namespace) -> int:
    from lockstep import api

    directory = api.command(parsed.run, {"type": "stop"})
    print(f"{directory.name} ends with a checkpoint; continue it with: lockstep resume {shlex.quote(directory.name)}")
    return 0


def resize(parsed: argparse.Namespace) -> int:
    from lockstep import api

    directory = api.command(parsed.run, {"type": "resize", "workers": parsed.workers})
    print(f"{directory.name} goes on with {parsed.workers} workers")
    return 0


def _conclude(run: Run, profiled: bool) -> int:
    """The last lines: final figures and digest, or how to go on."""
    if profiled:
        reports.profile(run.directory)
    if run.state == "stopped":
        where = "with a checkpoint" if run.digest else "at once, without a new checkpoint"
        print(f"stopped by {run.signal} {where}; continue with: lockstep resume {shlex.quote(run.name)}")
        return run.exit_code
    _print_figures(run)
    if (losses := _describe_losses(run)) is not None:
        print(losses)
    if run.steps_left:
        print(f"{run.steps_left} steps are left (--stop-at); go on with: lockstep resume {shlex.quote(run.name)}")
    if run.losses.dropped_leaves:
        print(f"{run.losses.dropped_leaves} leaves were dropped because they came late (--late drop)")
    if run.losses.broken_images:
        images = "image was" if run.losses.broken_images == 1 else "images were"
        print(f"{run.losses.broken_images} broken {images} passed over; metrics.jsonl and the logs name them")
    if run.is_mixed:
        print("workers with different arithmetic took part (--allow-mixed): this digest is not the recipe's")
    if not run.is_reproducible:
        print("this strategy depends on who is how fast: the run is not reproducible, another one has another digest")
    print(f"digest {run.digest}")
    return 0


def _describe_losses(run: Run) -> str | None:
    """What deaths and joins have cost, in words; None if nothing happened."""
    losses = run.losses
    if not losses.deaths and not losses.joins:
        return None
    died = f"{losses.deaths} {'worker' if losses.deaths == 1 else 'workers'} died on the way"
    leaves = "leaf" if losses.recomputed_leaves == 1 else "leaves"
    return f"{died}, {losses.joins} joined; {losses.recomputed_leaves} {leaves} recomputed, {losses.seconds:.2f} s lost"


def _print_figures(run: Run) -> None:
    from lockstep.progress import describe_figures

    figures = run.evaluation
    if figures is not None:
        print(f"{run.name}: step {figures['step']}, {describe_figures(figures)}")


def demo(parsed: argparse.Namespace) -> int:
    from lockstep import progress
    from lockstep.demo import show

    return show(progress.display(), parsed.steps)
