"""The batch script of a job under Slurm: how many nodes it needs, and its text. Pure; `cli.submit` submits it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.config import Job
from lockstep.engines.slurm_text import Partition
from lockstep.errors import UserError, unknown

SPARE_SECONDS = 60
"""Slurm may send the signal before the time limit so much earlier than it was asked to."""
WATCH = """\
# A job that outlives its nodes (--no-kill) outlives its first one too, without this script: the second node watches it,
# and puts the job back into the queue.
srun --overlap --nodes=1 --ntasks=1 --relative=1 --mem=0 --job-name=lockstep-watch bash -c '
  while sleep 60; do
    nodes=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N) && [ -n "$nodes" ] &&
      ! scontrol show hostnames "$nodes" | grep --quiet --line-regexp "$0" && scontrol requeue "$SLURM_JOB_ID"
  done' "$SLURMD_NODENAME" &>/dev/null &
watch=$!
"""
PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is asked of Slurm."""

    name: str
    directory: Path
    """Where the command is run."""
    logs: Path
    nodes: int
    workers_per_node: int
    cpus_per_worker: int
    gpus_per_worker: int
    time: str
    margin: int
    """Seconds before the time limit at which the job is asked for a checkpoint."""
    partition: str | None = None
    account: str | None = None
    setup: tuple[str, ...] = ()
    """Lines of shell before the command."""
    options: tuple[str, ...] = ()
    """Of sbatch, as the user wrote them."""
    command: tuple[str, ...]


def script(batch: Batch) -> str:
    """The whole script, for sbatch and for people."""
    margin = f"{batch.margin} seconds"
    lines = [
        "#!/bin/bash",
        "# Written by `lockstep submit slurm`. Every worker and server is a step of this job, started with srun.",
        *(f"#SBATCH {option}" for option in _options(batch)),
        *(["", *batch.setup] if batch.setup else []),
        "",
        *(WATCH.splitlines() if batch.nodes > 1 else []),
        *([""] if batch.nodes > 1 else []),
        _wrapped(batch.command) + " &",
        "training=$!",
        "",
        f"# USR1 comes {margin} before the time limit, TERM when the job is cancelled or makes way for another: stop",
        "# with a checkpoint.",
        "trap 'kill -USR1 \"$training\" 2>/dev/null' USR1",
        "trap 'kill -TERM \"$training\" 2>/dev/null' TERM",
        'while kill -0 "$training" 2>/dev/null; do wait "$training"; done # a signal ends `wait`, not the training',
        'wait "$training"',
        "code=$?",
        *(['kill "$watch"'] if batch.nodes > 1 else []),
        "",
        "# 138: stopped by USR1, out of time. The job goes on from its checkpoint when it is its turn again.",
        'if [ "$code" -eq 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _wrapped(command: tuple[str, ...]) -> str:
    """A command with a line for every option."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(words) for words in lines)


def _options(batch: Batch) -> list[str]:
    wanted: dict[str, str | int | None] = {
        "job-name": batch.name,
        "chdir": str(batch.directory),
        "output": str(batch.logs).replace("%", "%%") + "/slurm-%j.log",
        "open-mode": "append",
        "nodes": batch.nodes,
        "ntasks-per-node": batch.workers_per_node,
        "cpus-per-task": batch.cpus_per_worker,
        "gpus-per-node": batch.gpus_per_worker * batch.workers_per_node or None,
        "time": batch.time,
        "signal": f"B:USR1@{batch.margin}",
        "partition": batch.partition,
        "account": batch.account,
    }
    given = [f"--{key}={quoted(str(value))}" for key, value in wanted.items() if value is not None]
    return [*given, "--requeue", "--no-kill", "--export=ALL", *batch.options]


def quoted(text: str) -> str:
    """A value on a line that sbatch reads, which knows quotes and backslashes much as a shell does."""
    if PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_line(what: str, text: str) -> None:
    """A line break in a name would begin a line of the script."""
    if not text.isprintable():
        raise UserError(f"{what} must be one line of text without control characters, not {text!r}")


def check_path(directory: Path) -> None:
    """Slurm writes the log there."""
    check_line("the directory of the run", str(directory))
    if "\\" in str(directory):
        raise UserError(f"Slurm takes no backslash in the name of a log, and {directory} has one: choose another --run")


def seconds_of(time: str) -> float:
    """A time limit as Slurm takes it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if match is None:
        raise UserError(f"--time takes a limit such as 02:30:00 or 1-12:00:00, not {time!r}")
    days, *rest = match.groups()
    numbers = [int(number) for number in rest if number is not None]
    if days is not None or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def check_times(time: str, margin: int) -> None:
    """A job that is signalled as soon as it begins would be queued again and again."""
    if margin < 1:
        raise UserError(f"--margin takes a number of seconds of at least 1, not {margin}")
    if seconds_of(time) < margin + 2 * SPARE_SECONDS:
        least = (margin + 2 * SPARE_SECONDS + 59) // 60
        raise UserError(
            f"--time {time} leaves no time for training, since a checkpoint is written {margin} s before the end: give "
            f"at least {least} minutes, or a smaller --margin"
        )


def count_nodes(job: Job, nodes: int | None, per_node: int | None) -> tuple[int, int]:
    """How many nodes to ask for, and how many workers each must have room for. Servers share nodes with workers."""
    for flag, number in (("--nodes", nodes), ("--workers-per-node", per_node)):
        if number is not None and number < 1:
            raise UserError(f"{flag} takes a number of at least 1, not {number}")
    extra = 1 if job.evaluator == "own" else 0
    if per_node is None:
        per_node = 1 if nodes is None else -(-job.workers // max(1, nodes - extra))
    needed = -(-job.workers // per_node) + extra
    if nodes is not None and nodes < needed:
        evaluator = " and one for the evaluator" if extra else ""
        raise UserError(
            f"{job.workers} workers, {per_node} on a node, need {needed - extra} nodes{evaluator}, and --nodes says "
            f"{nodes}: give --nodes {needed}, or more with --workers-per-node"
        )
    return nodes or needed, per_node


def check_nodes(needed: int, partitions: Mapping[str, Partition], usual: str | None, asked: str | None) -> None:
    """Refuse what the partition, or each of several, can never give."""
    names = asked.split(",") if asked is not None else [usual] if usual is not None else []
    known = []
    for name in names:
        if name not in partitions:
            raise unknown("partition", name, partitions)
        known.append(partitions[name])
    if not known or any(one.usable >= needed for one in known):
        return
    best = max(known, key=lambda one: one.usable)
    name = names[known.index(best)]
    out = f" that can be used, of {best.nodes}" if best.usable < best.nodes else ""
    raise UserError(
        f"the job needs {needed} nodes, and the partition {name} has {best.usable}{out}: take fewer --workers, more "
        "with --workers-per-node, or another --partition"
    )
