"""`python -m bench [NAME ...]`: run benchmarks, write `bench/out/<name>.json` and `bench/RESULTS.md`.

`--quick` runs everything once and small, to see that it works; its figures mean nothing and RESULTS.md stays as it is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import accuracy, results
from bench.accounting import accounting
from bench.memory import memory
from bench.recovery import recovery
from bench.results import ROOT, Result
from bench.rounds import Say
from bench.slurm import slurm_engine
from bench.startup import startup
from bench.strategies import dense60m_strategies, resnet20_strategies, stragglers
from bench.throughput import one_worker, two_workers
from bench.verification import verification

Benchmark = Callable[[bool, Path, Say], Result]

BENCHMARKS: dict[str, Benchmark] = {
    "one-worker": one_worker,
    "two-workers": two_workers,
    "accounting": accounting,
    "startup": startup,
    "memory": memory,
    "recovery": recovery,
    "verification": verification,
    "stragglers": stragglers,
}

STRATEGIES: dict[str, Benchmark] = {
    "strategies-resnet20": resnet20_strategies,
    "strategies-dense60m": dense60m_strategies,
}
"""Half an hour each, next to peers from `pip install -e .[peers]`: only those that are named are run."""

SITES: dict[str, Benchmark] = {"slurm-engine": slurm_engine}
"""These need root and Debian's packages of Slurm: only those that are named are run."""

ACCURACY: dict[str, Benchmark] = {
    "fast-cifar10": accuracy.fast_cifar10,
    "tutorial-resnet18": accuracy.tutorial_resnet18,
    "resnet50-6n2": accuracy.resnet50_6n2,
    "strategies-accuracy": accuracy.strategies,
}
"""These take hours and need CIFAR-10: only those that are named are run."""

ALL = BENCHMARKS | STRATEGIES | SITES | ACCURACY

OUT = ROOT / "bench" / "out"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Lockstep against its peers.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"by default {', '.join(BENCHMARKS)}; also {', '.join(STRATEGIES | SITES | ACCURACY)}",
    )
    parser.add_argument("--data", metavar="DIR", help=f"CIFAR-10, for {', '.join(ACCURACY)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two; writes bench/out/quick/")
    given = parser.parse_args()
    for name in given.names:
        if name not in ALL:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(ALL)}")
        if name in ACCURACY and given.data is None:
            parser.error(f"{name} needs CIFAR-10: give its directory with --data")
    if given.data is not None:
        os.environ[accuracy.DATA_VARIABLE] = str(Path(given.data).resolve())
    out, table = (OUT / "quick", OUT / "quick" / "RESULTS.md") if given.quick else (OUT, ROOT / "bench" / "RESULTS.md")
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    started = time.monotonic()
    for name in given.names or BENCHMARKS:
        document = measure(name, given.quick, command, out / f"{name}.json")
        page = table.read_text() if table.exists() else ""
        table.write_text(results.updated(page, document, list(ALL)))
    print(f"{time.monotonic() - started:.0f} s; tables in {table.relative_to(ROOT)}")
    return 0


def measure(name: str, quick: bool, command: str, path: Path) -> dict[str, Any]:
    """Run one benchmark and write its file; run directories live only as long as it takes."""

    def say(line: str) -> None:
        print(f"[{name} {time.monotonic() - started:4.0f} s] {line}", flush=True)

    machine, started = results.describe_machine(), time.monotonic()
    say(f"load {machine['load_before']} before the start")
    with tempfile.TemporaryDirectory(prefix=f"lockstep-bench-{name}-") as scratch:
        result = ALL[name](quick, Path(scratch), say)
    plain = results.to_plain(result, machine, command, time.monotonic() - started)
    results.write(path, plain)
    print(results.section(plain), flush=True)
    return plain


if __name__ == "__main__":
    sys.exit(main())
