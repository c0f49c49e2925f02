"""The comparison with peers in one go, `make bench`: what is measured, going on after an interruption, and the head of
RESULTS.md."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import results, sidebyside
from bench.feeding import LOADS
from bench.kills import KILLS
from bench.ledger import Ledger, opened
from bench.marked import replaced
from bench.plan import Comparison, Measurement, carry_out, seconds_left
from bench.speed import SPEED

COMPARISONS: dict[str, Comparison] = {one.name: one for one in (LOADS, KILLS, SPEED)}
"""Rounds of the last are what is left out when the time is over."""
LIMIT_MINUTES = 60.0
PICTURE = "peers.png"
TITLE = "Side by side"


def run(out: Path, page: Path, readme: Path | None, quick: bool, fresh: bool, command: str, order: list[str]) -> None:
    """Measure what is missing in this session, and write the files of every comparison, the page and the picture, and
    the table of README if it is given."""
    machine = results.describe_machine()
    ledger = open_ledger(out / "session.json", machine, quick, fresh)
    plans = {name: one.plan(quick) for name, one in COMPARISONS.items()}
    coming = [one for plan in plans.values() for one in plan]
    documents: dict[str, dict[str, Any]] = {}
    for name, comparison in COMPARISONS.items():
        _measure(name, plans[name], coming, ledger)
        spent = sum(ledger.seconds.get(one.key, 0.0) for one in plans[name])
        plain = results.to_plain(comparison.conclude(ledger.entries, quick), machine, command, spent)
        results.write(out / f"{name}.json", plain)
        documents[name] = plain
        text = page.read_text() if page.exists() else ""
        page.write_text(results.updated(text, plain, order))
    finish(documents, page, readme, ledger)


def open_ledger(path: Path, machine: Mapping[str, Any], quick: bool, fresh: bool) -> Ledger:
    """That of a session that was interrupted, unless it was another code, another machine, or is not wanted."""
    same = ("processor", "cores", "system", "python", "torch")
    commit = str(machine["commit"]).partition(" ")[0]
    ledger = opened(path, {**{key: machine[key] for key in same}, "commit": commit, "quick": quick}, fresh)
    if ledger.entries:
        print(
            f"going on with {len(ledger.entries)} measurements of an earlier session; --fresh begins anew", flush=True
        )
    return ledger


def _measure(name: str, plan: list[Measurement], coming: list[Measurement], ledger: Ledger) -> None:
    def say(line: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)

    missing = [one for one in plan if one.key not in ledger]
    say(
        f"{name}: {len(missing)} of {len(plan)} measurements to make; {seconds_left(coming, ledger) / 60:.0f} min in "
        "all"
    )
    with tempfile.TemporaryDirectory(prefix=f"lockstep-bench-{name}-", ignore_cleanup_errors=True) as scratch:
        carry_out(plan, coming, ledger, LIMIT_MINUTES * 60, Path(scratch), say)


def finish(documents: Mapping[str, Mapping[str, Any]], page: Path, readme: Path | None, ledger: Ledger) -> None:
    from bench import bars

    filled = sidebyside.cells(documents)
    bars.draw(filled, page.with_name(PICTURE))
    spent = sum(ledger.seconds.values())
    page.write_text(with_head(page.read_text(), head(documents, filled, spent)))
    if readme is not None:
        readme.write_text(replaced(readme.read_text(), TITLE.lower(), table(documents, filled, spent)))
    print("\n".join(head(documents, filled, spent)), flush=True)
    ledger.close()


def table(documents: Mapping[str, Mapping[str, Any]], filled: sidebyside.Cells, seconds: float) -> list[str]:
    """Everyone in one table, why cells are empty, and the machine. Pure."""
    last = list(documents.values())[-1]
    return [
        *sidebyside.markdown(sidebyside.table(filled)),
        "",
        "Not measured: " + " ".join(sidebyside.notes(filled)),
        "",
        f"{last['date']}, `{last['command']}`, {seconds / 60:.0f} minutes. {results.machine_words(last['machine'])}",
    ]


def head(documents: Mapping[str, Mapping[str, Any]], filled: sidebyside.Cells, seconds: float) -> list[str]:
    """The table, the picture, and every ratio. Pure."""
    return [
        f"## {TITLE}",
        "",
        "ResNet-20 on the CPU. Medians with their 95 % intervals, all from one session; how each was measured is in "
        "the sections `peers-...` below.",
        "",
        *table(documents, filled, seconds),
        "",
        f"![Everyone side by side: bars with intervals]({PICTURE})",
        "",
        "Each ratio of this session. A speed is not behind at 0.92 or more, a time or a size not above at 1.08 or "
        "less; two processes should do twice as much as one, less the same 8 %.",
        "",
        *sidebyside.markdown(sidebyside.verdicts(documents)),
        "",
    ]


def with_head(page: str, lines: list[str]) -> str:
    """The page with this section at its top, in the place of an earlier one."""
    intro, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    kept = [section for section in sections if not section.startswith(f"## {TITLE}\n")]
    return "".join([intro, "\n".join([*lines, ""]), *kept])
