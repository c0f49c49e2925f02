"""Two hosts with a slow network between them: images per second of the strategies, next to DDP.

The hosts are network namespaces that a pair of virtual cards connects, each throttled by `tc tbf`: that needs root and
iproute2. The second host takes part by `lockstep join`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench import contestants
from bench.contestants import GLOBAL_BATCH, read_json, started_process
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved
from bench.strategies import Size
from lockstep import metrics

RECIPE, LEAVES, LOCAL_STEPS = "resnet20", 4, 10
ADDRESSES = ("10.78.0.1", "10.78.0.2")
RATES = {"1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
SHAPE = ("burst", "64kb", "latency", "50ms")
"""The burst is far less than what a step sends: the rate is what counts."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "allreduce": (),
    "server": ("--strategy", "server", "--servers", "1"),
    "averaging": ("--strategy", "averaging", "--local-steps", str(LOCAL_STEPS)),
}


def two_hosts(quick: bool, scratch: Path, say: Say) -> Result:
    size = Size(1, 1, 3, 20) if quick else Size(MIN_ROUNDS, 3, 15, 40)
    figures, measured = [], []
    for label, rate in RATES.items():
        with network(rate) as hosts:
            runs: dict[str, Contestant] = {name: partial(_lockstep, hosts, name, size) for name in OPTIONS}
            runs["DDP"] = partial(_ddp, hosts, size)
            samples = interleaved(runs, size.rounds, scratch / rate, say)
        for name in OPTIONS:
            target = Target.not_behind() if name == "allreduce" else None
            figures.append(Figure(f"{label}: {name} / DDP", "ratio", paired(samples[name], samples["DDP"]), target))
        measured += [Figure(f"{label}: {name}", "images/s", values) for name, values in samples.items()]
    return Result(
        name="two-hosts",
        question="ResNet-20, batch 128 in 4 leaves, a worker with one thread on each of two hosts (network namespaces "
        "on two cores, throttled by `tc tbf` in both directions); the second joined with `lockstep join`. `averaging` "
        f"exchanges every {LOCAL_STEPS} steps. DDP over gloo with the same micro-batches.",
        figures=figures,
        measured=measured,
    )


@contextmanager
def network(rate: str) -> Iterator[list[str]]:
    """Two hosts with a link of this rate between them; their names."""
    if os.geteuid() != 0:
        raise RuntimeError("two-hosts makes network namespaces, which needs root")
    hosts = [f"lockstep-bench-{os.getpid()}-{number}" for number in range(len(ADDRESSES))]
    try:
        for host in hosts:
            _ip("netns", "add", host)
        _ip("-n", hosts[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", hosts[1])
        for host, address in zip(hosts, ADDRESSES, strict=True):
            _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for card in ("lo", "eth0"):
                _ip("-n", host, "link", "set", card, "up")
            _ip("netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, *SHAPE)
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _lockstep(hosts: list[str], name: str, size: Size, directory: Path) -> float:
    steps = size.local if name == "averaging" else size.steps
    directory.mkdir(parents=True)
    command = contestants.lockstep_command(directory, RECIPE, workers=1, leaves=LEAVES, steps=steps)
    command += ["--listen", ADDRESSES[0], "--min-workers", "2", "--no-tensorboard", *OPTIONS[name]]
    log, started = directory / "log", time.time()
    with started_process([*_inside(hosts[0]), *command], log) as process:
        address, token = _invitation(process, directory / "run" / "supervisor.json", log, started)
        join = [*_inside(hosts[1]), *contestants.LOCKSTEP, "join", address]
        with started_process(join, directory / "join.log", {"LOCKSTEP_TOKEN": token}) as joined:
            contestants.finish(process, log, started)
            contestants.finish(joined, directory / "join.log", started)
    rows = [row for row in metrics.read(directory / "run" / "metrics.jsonl") if row["kind"] == "train"]
    warmup = max(1, round(size.warmup * len(rows) / steps))
    return median(float(row["images_per_second"]) for row in rows[warmup:])


def _invitation(process: subprocess.Popen[bytes], path: Path, log: Path, started: float) -> tuple[str, str]:
    """Where the run listens, and its token, as soon as it does."""
    while not path.exists():
        if process.poll() is not None or time.time() - started > contestants.TIME_LIMIT_SECONDS:
            contestants.finish(process, log, started)
        time.sleep(0.05)
    document = read_json(path)
    return document["address"], document["token"]


def _ddp(hosts: list[str], size: Size, directory: Path) -> float:
    places = [_inside(host) for host in hosts]
    found = contestants.ddp(
        directory, RECIPE, world=2, leaves=LEAVES, steps=size.steps, places=places, interface="eth0"
    )
    return GLOBAL_BATCH / found[0].step(size.warmup)


def _inside(host: str) -> list[str]:
    return ["ip", "netns", "exec", host]
