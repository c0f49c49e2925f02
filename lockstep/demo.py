"""`lockstep demo`: one recipe, trained by one worker, by two, and by two of which one is killed, ends on one digest."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lockstep import api, injection, metrics, rundirectory
from lockstep.api import Run
from lockstep.errors import UserError
from lockstep.progress import Display
from lockstep.request import Request

KILL_STEP = 150
"""Where the third act kills a worker: late enough to see it work, early enough to see the replacement work too."""


@dataclass(frozen=True)
class Act:
    """One training of the demo."""

    workers: int
    run: Run
    seconds: float
    images_per_second: float


def show(display: Display, steps: int | None = None) -> int:
    """Train, print the table, and say whether the digests agree; the exit code says it too."""
    _check_place()
    performed = []
    for workers, kill in ((1, False), (2, False), (2, True)):
        performed.append(act(workers, kill, steps, display))
        if performed[-1].run.state != "finished":
            print(
                f"the demo was stopped; continue this run with: {as_typed('lockstep')} resume {performed[-1].run.name}"
            )
            return performed[-1].run.exit_code
    _print_table(performed)
    digests = {one.run.digest for one in performed}
    if len(digests) > 1:
        print("The digests differ, which must not happen: please report this with both run directories.")
        return 1
    directories = ",".join(f"{one.run.directory.name}:{one.run.directory}" for one in performed)
    print("\nSame bits, whatever the number of workers, and whether one died. Curves of the runs:")
    print(f"  {as_typed('tensorboard')} --logdir_spec {directories}")
    digest = f"{as_typed('lockstep')} digest"
    print(f"Check it yourself: {digest} {performed[0].run.name}; {digest} {performed[-1].run.name}")
    return 0


def _check_place() -> None:
    """The demo has no `--run`, which is what a training would advise."""
    place = next(one for one in (rundirectory.ROOT, Path.cwd()) if one.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {place}: change to another directory, and start the demo there")


def as_typed(program: str) -> str:
    """What to type for a program beside this Python: its path, if a shell would not find it, or find another one."""
    beside = Path(sys.executable).parent / program
    found = shutil.which(program)
    if not beside.exists() or (found is not None and Path(found).samefile(beside)):
        return program
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def act(workers: int, kill: bool, steps: int | None, display: Display) -> Act:
    """One training with so many workers; with `kill` the last of them kills itself in the middle."""
    name = f"demo-{workers}-worker{'s' * (workers > 1)}{'-one-killed' * kill}"
    directory = rundirectory.for_new_run(None, name)
    rule = f"kill worker={workers - 1} step={KILL_STEP if steps is None else steps // 2} phase=exchange"
    start = time.monotonic()
    with injection.rules(rule if kill else ""):
        run = api.train("demo", Request(workers=workers, steps=steps), run=directory.name, display=display)
    seconds = time.monotonic() - start
    rows = metrics.read(run.directory / "metrics.jsonl")
    speeds = sorted(row["images_per_second"] for row in rows if row["kind"] == "train")
    return Act(workers, run, seconds, speeds[len(speeds) // 2] if speeds else 0.0)


def _print_table(performed: list[Act]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="One recipe, one digest")
    for column in ("workers", "killed", "seconds", "images/s", "top1", "digest"):
        table.add_column(column, justify="left" if column == "digest" else "right")
    for one in performed:
        assert one.run.digest is not None
        top1 = f"{one.run.evaluation['top1']:.2%}" if one.run.evaluation else ""
        digest = f"{one.run.digest[:32]}…"
        killed = str(one.run.losses.deaths or "")
        table.add_row(str(one.workers), killed, f"{one.seconds:.1f}", f"{one.images_per_second:.0f}", top1, digest)
    Console(width=96).print(table)
