"""Which client reads many small ranges from S3 fastest, and what is left of that in Lockstep's storage; and WebDataset,
which reads no ranges."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.peers.s3reader import CLIENTS, WEBDATASET, Plan
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import ROOT, Figure, Result
from bench.rounds import Contestant, Say, interleaved
from lockstep.data.storage.parallel import THREADS
from tests.data.s3server import ANYONE, environment, missing, seaweed

LENGTH = 100_000
"""About an image of ImageNet."""
OURS = "Lockstep"


def s3_clients(quick: bool, scratch: Path, say: Say) -> Result:
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    rounds, objects, reads, passes = (1, 2, 40, 1) if quick else (MIN_ROUNDS, 8, 160, 4)
    draw = random.Random(7)
    tars = {f"shard-{number}.tar": _tar(draw, reads) for number in range(objects)}
    starts = {key: draw.sample(starts, reads) for key, (_, starts) in tars.items()}
    size = max(len(data) for data, _ in tars.values())
    plan = scratch / "plan.json"
    plan.write_text(json.dumps(asdict(Plan(ANYONE, size, LENGTH, starts, passes))))
    names = [name for name in CLIENTS if name != WEBDATASET or importlib.util.find_spec("webdataset") is not None]
    cpu: dict[str, list[float]] = {}
    with seaweed(scratch / "server") as server:
        for key, (data, _) in tars.items():
            server.put(ANYONE, key, data)
        contestants: dict[str, Contestant] = {
            name: partial(_speed, name, plan, server.endpoint_url, cpu) for name in names
        }
        speeds = interleaved(contestants, rounds, scratch, say)
    others = {name: values for name, values in speeds.items() if name not in (OURS, WEBDATASET)}
    fastest = [max(values) for values in zip(*others.values(), strict=True)]
    compared = {
        "the fastest of the others that read ranges, in each round": (fastest, Target(0.9, at_least=True)),
        **({f"{WEBDATASET}, whole tars": (speeds[WEBDATASET], None)} if WEBDATASET in speeds else {}),
    }
    return Result(
        name="s3-clients",
        question=f"{passes * objects * reads:,} ranges of {LENGTH // 1000} KB of {objects} tars in random order, "
        f"from a SeaweedFS on loopback that checks signatures, {THREADS} requests in flight. The others throw the "
        "bytes away and check nothing; Lockstep compares the ETag, so that an object that has changed is noticed, and "
        "copies the bytes to Python. WebDataset reads the tars from front to back, by one "
        "curl after the other. Client and server share the cores.",
        figures=[
            Figure(f"MB/s: {OURS} / {name}", "ratio", paired(speeds[OURS], values), target)
            for name, (values, target) in compared.items()
        ],
        measured=[
            *(Figure(name, "MB/s", values) for name, values in speeds.items()),
            *(
                Figure(f"{name}: CPU of the client for a GB", "seconds", values)
                for name, values in cpu.items()
                if name != WEBDATASET
            ),
        ],
    )


def _tar(draw: random.Random, members: int) -> tuple[bytes, list[int]]:
    """Random bytes that call themselves images, and where each begins."""
    file, starts = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(members):
            member = tarfile.TarInfo(f"{number:06d}.jpg")
            member.size = LENGTH
            starts.append(tar.offset + tarfile.BLOCKSIZE)
            tar.addfile(member, io.BytesIO(draw.randbytes(LENGTH)))
    return file.getvalue(), starts


def _speed(name: str, plan: Path, endpoint_url: str, cpu: dict[str, list[float]], directory: Path) -> float:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    variables |= environment(endpoint_url) | {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-m", "bench.peers.s3reader", name, str(plan)]
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    speed, seconds = (float(word) for word in done.stdout.split())
    cpu.setdefault(name, []).append(seconds)
    return speed
