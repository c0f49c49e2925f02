"""`lockstep demo`: one recipe, trained with one worker and with two, ends on one digest."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lockstep import api, metrics, rundirectory
from lockstep.api import Request, Run
from lockstep.progress import Display


@dataclass(frozen=True)
class Act:
    """One training of the demo."""

    workers: int
    run: Run
    seconds: float
    images_per_second: float


def show(display: Display, steps: int | None = None) -> int:
    """Train, print the table, and say whether the digests agree; the exit code says it too."""
    performed = []
    for workers in (1, 2):
        performed.append(act(workers, steps, display))
        if performed[-1].run.state != "finished":
            print(f"the demo was stopped; continue this run with: lockstep resume {performed[-1].run.name}")
            return performed[-1].run.exit_code
    _print_table(performed)
    digests = {one.run.digest for one in performed}
    if len(digests) > 1:
        print("The digests differ, which must not happen: please report this with both run directories.")
        return 1
    directories = ",".join(f"{one.workers}:{one.run.directory}" for one in performed)
    print("\nSame bits, whatever the number of workers. Curves of both runs:")
    print(f"  tensorboard --logdir_spec {directories}")
    print(f"Check it yourself: lockstep digest {performed[0].run.name}; lockstep digest {performed[1].run.name}")
    return 0


def act(workers: int, steps: int | None, display: Display) -> Act:
    """One training with so many workers."""
    plural = "s" if workers > 1 else ""
    directory = rundirectory.for_new_run(None, f"demo-{workers}-worker{plural}")
    start = time.monotonic()
    run = api.train("demo", Request(workers=workers, steps=steps), run=directory.name, display=display)
    seconds = time.monotonic() - start
    rows = metrics.read(run.directory / "metrics.jsonl")
    speeds = sorted(row["images_per_second"] for row in rows if row["kind"] == "train")
    return Act(workers, run, seconds, speeds[len(speeds) // 2] if speeds else 0.0)


def _print_table(performed: list[Act]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="One recipe, one digest")
    for column in ("workers", "seconds", "images/s", "top1", "digest"):
        table.add_column(column, justify="left" if column == "digest" else "right")
    for one in performed:
        assert one.run.digest is not None
        top1 = f"{one.run.evaluation['top1']:.2%}" if one.run.evaluation else ""
        digest = f"{one.run.digest[:32]}…"
        table.add_row(str(one.workers), f"{one.seconds:.1f}", f"{one.images_per_second:.0f}", top1, digest)
    Console(width=88).print(table)
