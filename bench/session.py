"""A session of named benchmarks, `python -m bench NAME ...`: started again after an interruption, it goes on behind the
last training that was finished.

Each benchmark has a ledger of its own, with its trainings and whether it is finished. They stay until all benchmarks of
the command are: the session is over then, and the next one begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import ledger
from bench.ledger import Ledger
from bench.trainings import Memory

FINISHED = "finished"
"""The key of the entry that is no training, but the commit that the benchmark was finished with."""

MACHINE = ("processor", "cores", "python", "torch")
"""What may not change while a session goes on. Not the commit: a benchmark of hours may span several, and a training
says itself what it has reached."""

Measure = Callable[[str, Memory], None]


def run(
    names: Sequence[str], out: Path, machine: Mapping[str, Any], given: Mapping[str, Any], fresh: bool, measure: Measure
) -> None:
    """Measure what is not finished yet; `given` is what it depends on besides the machine."""
    identity = {**{key: machine[key] for key in MACHINE}, **given}
    commit = str(machine["commit"]).partition(" ")[0]
    ledgers = {name: ledger.opened(out / f"{name}-session.json", identity, fresh, f"{name}: ") for name in names}
    coming = [name for name, known in ledgers.items() if not is_finished(known, commit)]
    for name, known in ledgers.items():
        if known.entries:
            where = f"going on behind {len(trainings(known))} trainings" if name in coming else "it was finished"
            print(f"{name}: {where} in an earlier session; --fresh begins anew", flush=True)
    for name in coming:
        measure(name, Memory(ledgers[name]))
        ledgers[name].add(FINISHED, commit, 0.0)
    for known in ledgers.values():
        known.close()


def is_finished(known: Ledger, commit: str) -> bool:
    """What has no trainings takes minutes, and is measured again when the code has changed."""
    return FINISHED in known and (bool(trainings(known)) or known.entries[FINISHED] == commit)


def trainings(known: Ledger) -> list[str]:
    return [key for key in known.entries if key != FINISHED]
