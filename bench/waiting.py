"""Whether training on large images waits for them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

from bench import contestants
from bench.images import directory, shards
from bench.ratio import MIN_ROUNDS, Target
from bench.results import Figure, Result
from bench.rounds import Say
from lockstep import metrics

WAITING_TARGET = Target(0.02, at_least=False)


def imagenet_waiting(quick: bool, scratch: Path, say: Say) -> Result:
    """ResNet-18 at 224 from tars of this host, two workers: what of a step is waiting for data in the second epoch."""
    rounds = 1 if quick else MIN_ROUNDS
    shares: list[float] = []
    speeds: list[float] = []
    for number in range(rounds):
        rows = _train(scratch / f"round{number}", quick)
        shares.append(waiting_share(rows))
        speeds.append(median(float(row["images_per_second"]) for row in rows))
        say(f"round {number + 1}/{rounds}: {shares[-1]:.2%} of a step is waiting, {speeds[-1]:.1f} images/s")
    return Result(
        name="imagenet-waiting",
        question="ResNet-18 at 224 x 224 with two workers, real images in tars: what share of a step does the first "
        "worker wait for data, in epoch 2?",
        figures=[Figure("waiting for data", "share", shares, WAITING_TARGET)],
        measured=[Figure("training", "images/s", speeds)],
    )


def waiting_share(rows: list[metrics.Row]) -> float:
    spans = [row["spans"] for row in rows]
    return float(sum(one.get("data", 0.0) for one in spans) / sum(sum(one.values()) for one in spans))


def _train(path: Path, quick: bool) -> list[metrics.Row]:
    """The rows of the second epoch."""
    batch, leaves, side = (32, 4, 224) if not quick else (16, 2, 64)
    path.mkdir(parents=True)
    command = [sys.executable, "-m", "lockstep", "train", "imagenet-resnet50-modern", "--data", str(shards()[0].parent)]
    command += [option for file in sorted(directory().rglob("train.txt"))[:1] for option in ("--labels", str(file))]
    command += ["--set", "model.depth=18", "--set", f"data.side={side}", "--hold-out", "20", "--workers", "2"]
    command += ["--batch-size", str(batch), "--leaves", str(leaves), "--epochs", "2", "--set", "log_every=1"]
    command += ["--set", "evaluation.max_leaves=1", "--set", "evaluation.leaf_batch=10", "--run", str(path / "run")]
    started = time.time()
    with contestants.started_process(command, path / "log") as process:
        contestants.finish(process, path / "log", started)
    rows = [row for row in metrics.read(path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    return rows[len(rows) // 2 :]
