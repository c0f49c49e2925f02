"""`--profile`: where the time of a step goes, for each worker, from its spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import metrics
from lockstep.spans import NAMES

if TYPE_CHECKING:
    from rich.table import Table


def table(rows: list[metrics.Row]) -> Table:
    """A line for each worker that finished the newest session, with the share of every span."""
    from rich.table import Table

    started = max((number for number, row in enumerate(rows) if row.get("kind") == "start"), default=0)
    found = [row for row in rows[started:] if row.get("kind") == "spans"]
    names = [name for name in NAMES if any(row["seconds"].get(name) for row in found)]
    shown = Table(box=None, pad_edge=False)
    for title in ("worker", "seconds", *names):
        shown.add_column(title, justify="right")
    for row in sorted(found, key=lambda row: int(row["worker"])):
        total = sum(row["seconds"].values())
        shares = [row["seconds"].get(name, 0.0) / total if total else 0.0 for name in names]
        shown.add_row(str(row["worker"]), f"{total:.2f}", *(f"{share:.1%}" for share in shares))
    return shown
