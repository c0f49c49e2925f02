"""`lockstep submit slurm`: checks what `lockstep train` would check, and hands the job to Slurm.

Parsing imports nothing heavy. The script is written by `sbatch`.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Literal

from lockstep.cli import options
from lockstep.cli.arguments import Parser
from lockstep.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from lockstep.sbatch import Batch
    from lockstep.supervisor.plan import Plan

COMMAND_SECONDS = 60.0
"""How long sinfo and sbatch may take."""


def add_commands(command: argparse.ArgumentParser) -> None:
    schedulers = command.add_subparsers(title="schedulers", metavar="SCHEDULER", required=True)
    summary = "hand a training to Slurm; it goes on by itself after the time limit"
    slurm = schedulers.add_parser(
        "slurm",
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="example: lockstep submit slurm resnet20-cifar10 --data shapes --workers 4 --time 02:30:00 --dry-run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.train_options(slurm)
    slurm.add_argument(
        "--time", metavar="LIMIT", required=True, help="the time limit, as 02:30:00; the job goes on after it"
    )
    slurm.add_argument("--margin", type=int, default=120, metavar="S", help="seconds before it for a checkpoint (120)")
    slurm.add_argument("--nodes", type=int, metavar="N", help="by default as many as the workers need")
    slurm.add_argument("--workers-per-node", type=int, metavar="W", help="1 unless --nodes says otherwise")
    slurm.add_argument("--gpus-per-worker", type=int, metavar="G", help="1 for --device cuda, which it implies")
    slurm.add_argument("--partition", metavar="P", help="default: the usual one of the site")
    slurm.add_argument("--account", metavar="A", help="whom the site charges for it")
    slurm.add_argument(
        "--setup", metavar="LINE", action="append", default=[], help="shell before the training; may be repeated"
    )
    slurm.add_argument(
        "--sbatch", metavar="OPTION", action="append", default=[], help="as --sbatch=--constraint=gpu; may be repeated"
    )
    slurm.add_argument(
        "--launch", metavar="COMMAND", help="how the nodes call Lockstep; default: this very interpreter"
    )
    slurm.add_argument("--dry-run", action="store_true", help="print the script, and submit nothing")


def arguments_of(parsed: argparse.Namespace, changes: dict[str, Any]) -> list[str]:
    """The options as they would be written, in the order of the help; `changes` say otherwise or more."""
    parser = Parser(add_help=False)
    options.train_options(parser)
    words: list[str] = []
    for action in parser._actions:
        value = changes.get(action.dest, getattr(parsed, action.dest))
        if action.option_strings and value != action.default:
            words += _words(action, value)
    return words


def _words(action: argparse.Action, value: Any) -> list[str]:
    flag = action.option_strings[0]
    if isinstance(action, argparse.BooleanOptionalAction):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if action.nargs == 0:  # store_true, store_const: several flags may share a field
        return [flag] if value == action.const else []
    if action.nargs == "?" and value == action.const:
        return [flag]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in ([f"{flag}={one}"] if str(one).startswith("-") else [flag, str(one)])]


def submit(parsed: argparse.Namespace) -> int:
    from lockstep import sbatch

    plan = _check(parsed)
    batch = _batch(parsed, plan)
    text = sbatch.script(batch)
    if parsed.dry_run:
        print(text, end="")
        return 0
    _check_nodes(batch, parsed.partition)
    job = _hand_over(plan, text, is_new=parsed.run is None)
    print(job)
    log = batch.logs / f"slurm-{job}.log"
    nodes = "1 node" if batch.nodes == 1 else f"{batch.nodes} nodes"
    print(
        f"submitted as job {job} on {nodes}; the run is {plan.directory.name}, its logs will be in {batch.logs}\n"
        f"follow it with: tail -F {log}",
        file=sys.stderr,
    )
    return 0


def _check(parsed: argparse.Namespace) -> Plan:
    """Everything that can be wrong, but for the site."""
    from dataclasses import replace

    from lockstep import api, sbatch

    if parsed.engine not in (None, "slurm"):
        raise UserError(f"`lockstep submit slurm` takes --engine slurm, and not {parsed.engine}: leave it out")
    if parsed.gpus_per_worker not in (None, 0, 1):
        raise UserError(
            f"a worker computes on one GPU, so --gpus-per-worker takes 0 or 1, not {parsed.gpus_per_worker}"
        )
    if parsed.workers is None:
        raise UserError("say how many workers to ask Slurm for: give --workers N")
    sbatch.check_times(parsed.time, parsed.margin)
    named = {
        "--run": parsed.run,
        "--partition": parsed.partition,
        "--account": parsed.account,
        "--launch": parsed.launch,
    }
    for flag, line in [*named.items(), *(("--sbatch", option) for option in parsed.sbatch)]:
        sbatch.check_line(flag, line or "")
    elsewhere: Literal["cpu", "cuda"] = "cuda" if parsed.gpus_per_worker else "cpu"
    request = replace(options.request(parsed), engine="slurm")
    plan = api.check(parsed.recipe, request, run=parsed.run, resume=parsed.resume, elsewhere=elsewhere)
    if parsed.gpus_per_worker is not None and (plan.recipe.device == "cuda") != bool(parsed.gpus_per_worker):
        raise UserError(
            f"--gpus-per-worker {parsed.gpus_per_worker} and device {plan.recipe.device} contradict each other: leave "
            "one of them out"
        )
    return plan


def _batch(parsed: argparse.Namespace, plan: Plan) -> Batch:
    import shlex
    from pathlib import Path

    from lockstep import sbatch

    nodes, per_node = sbatch.count_nodes(plan.job, parsed.nodes, parsed.workers_per_node)
    try:
        launch = tuple(shlex.split(parsed.launch or "")) or (sys.executable, "-m", "lockstep")
    except ValueError as error:
        raise UserError(f"--launch {parsed.launch!r} is no command: {error}") from None
    run = parsed.run or plan.directory.name
    named = {"device": plan.recipe.device, "engine": "slurm", "run": run, "resume": True}
    sbatch.check_path(plan.directory.path.absolute())
    return sbatch.Batch(
        name=plan.directory.path.name,
        directory=Path.cwd(),
        logs=plan.directory.path.absolute() / "logs",
        nodes=nodes,
        workers_per_node=per_node,
        cpus_per_worker=plan.job.cpus_per_worker or plan.recipe.threads,
        gpus_per_worker=1 if plan.recipe.device == "cuda" else 0,
        time=parsed.time,
        margin=parsed.margin,
        partition=parsed.partition,
        account=parsed.account,
        setup=tuple(parsed.setup),
        options=tuple(parsed.sbatch),
        command=(*launch, "train", parsed.recipe, *arguments_of(parsed, named)),
    )


def _check_nodes(batch: Batch, partition: str | None) -> None:
    from lockstep import sbatch
    from lockstep.engines.slurm_text import parse_partitions

    partitions, usual = parse_partitions(_call("sinfo", "--noheader", "--all", "--format=%P|%D|%T"))
    sbatch.check_nodes(batch.nodes, partitions, usual, partition)


def _hand_over(plan: Plan, text: str, is_new: bool) -> str:
    """Submit the script; the number of the job. Slurm writes to the directory of the logs, but does not make it."""
    import shutil

    from lockstep import rundirectory

    directory = plan.directory
    was_there = directory.path.exists()
    try:
        rundirectory.create(directory, is_new=is_new)
    except FileExistsError:
        raise UserError(f"another command has just taken the name {directory.name}: try again") from None
    stored: Path = directory.path / "logs" / "sbatch.sh"
    try:
        stored.write_text(text)
        return _call("sbatch", "--parsable", str(stored)).strip().partition(";")[0]
    except UserError:
        if not was_there:
            shutil.rmtree(directory.path)
        raise


def _call(*arguments: str) -> str:
    """What a command of Slurm prints; what it complains of is the user's to read."""
    import os
    import subprocess

    from lockstep.engines.slurm_text import clean_environment

    # What the user has set for sbatch counts; what is set for sinfo would only change its format.
    environment = os.environ if arguments[0] == "sbatch" else clean_environment(os.environ)
    try:
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except FileNotFoundError:
        raise UserError(
            f"there is no {arguments[0]} here: submit from a host of the cluster, or look at the script with --dry-run"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{arguments[0]} does not answer: look with `sinfo` whether Slurm is up") from None
    if done.returncode:
        raise UserError(f"nothing was submitted, {arguments[0]} says: {' '.join(done.stderr.split())}")
    return done.stdout
