"""Images from S3 to pixels: what 50 ms of latency per request cost, and WebDataset on the same server."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.images import directory, shards
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import ROOT, Figure, Result
from bench.rounds import Contestant, Say, interleaved
from tests.data.s3server import ANYONE, Server, environment, missing, seaweed

LATENCY_SECONDS = 0.05
NEAR, FAR, WEBDATASET = "Lockstep", f"Lockstep, {LATENCY_SECONDS * 1000:.0f} ms later", "WebDataset"
LABELS = "train.txt"


def s3_loading(quick: bool, scratch: Path, say: Say) -> Result:
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    rounds, count = (1, 64) if quick else (MIN_ROUNDS, 960)
    notes = []
    with seaweed(scratch / "server") as server:
        _upload(server)
        with _proxy(server.port) as far:
            runs: dict[str, Contestant] = {
                NEAR: partial(_load, "lockstep", server.endpoint_url, f"s3://{ANYONE}/images", count),
                FAR: partial(_load, "lockstep", far, f"s3://{ANYONE}/images", count),
            }
            if importlib.util.find_spec("webdataset") is not None:
                urls = f"{server.endpoint_url}/{ANYONE}/images/{{{','.join(path.stem for path in shards())}}}.tar"
                runs[WEBDATASET] = partial(_load, "webdataset", server.endpoint_url, urls, count)
            else:
                notes.append("WebDataset was not installed.")
            samples = interleaved(runs, rounds, scratch, say)
    figures = [
        Figure(f"{FAR} / {NEAR}", "ratio", paired(samples[FAR], samples[NEAR]), Target(0.9, at_least=True)),
    ]
    if WEBDATASET in samples:
        figures.append(Figure("Lockstep / WebDataset", "ratio", paired(samples[NEAR], samples[WEBDATASET])))
    return Result(
        name="s3-loading",
        question="Real images in tars on a SeaweedFS on loopback, read by ranges in random order, decoded and cut to "
        "224 x 224, without training. WebDataset reads whole tars one after the other, in one process.",
        figures=figures,
        measured=[Figure(name, "images/s", values) for name, values in samples.items()],
        notes=notes,
    )


def _upload(server: Server) -> None:
    for path in shards():
        server.put(ANYONE, f"images/{path.name}", path.read_bytes())
    for path in sorted(directory().rglob(LABELS))[:1]:
        server.put(ANYONE, LABELS, path.read_bytes())


@contextmanager
def _proxy(port: int) -> Iterator[str]:
    """The endpoint of the same server, further away; in a process of its own."""
    command = [sys.executable, "-m", "tests.data.faultproxy", str(port), "--latency", str(LATENCY_SECONDS)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _load(loader: str, endpoint_url: str, url: str, count: int, scratch: Path) -> float:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    labels = f"s3://{ANYONE}/{LABELS}"
    command = [sys.executable, "-m", "bench.peers.loader", loader, url, labels, str(count)]
    environment_ = variables | environment(endpoint_url) | {"XDG_CACHE_HOME": str(scratch / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment_, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)
