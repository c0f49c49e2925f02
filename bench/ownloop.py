"""A training script of one's own under `lockstep launch`, next to `lockstep train` with the same recipe.

Both compute the same network on the same images with the same leaves and exchange. What differs is the loop: samples
are read one by one by a `Dataset` and collated, an ordinary optimizer gets gradients of its own to change, and what
happens between leaves is looked at. The spans say what each of these costs.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench import contestants
from bench.contestants import LOCKSTEP
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import ROOT, Figure, Result
from bench.rounds import Say
from lockstep import metrics
from lockstep.metrics import Row

WORKERS, LEAVES = 2, 4
SCRIPT = ROOT / "bench" / "peers" / "ownscript.py"
PLAIN = ("--set", "data.crop_padding=0", "--set", "data.flip=false")
"""The script does not augment."""
SPANS = ("data", "forward", "backward", "exchange", "optimizer", "report")
OTHER = "without a span"


def own_loop(quick: bool, scratch: Path, say: Say) -> Result:
    rounds, log_every = (1, 3) if quick else (MIN_ROUNDS, 10)
    trained, launched = [], []
    for number in range(rounds):
        place = scratch / f"round{number}"
        trained.append(_milliseconds(_train(place / "train", log_every)))
        launched.append(_milliseconds(_launch(place / "launch", log_every)))
        steps = f"{sum(trained[-1].values()):.0f} and {sum(launched[-1].values()):.0f} ms a step"
        say(f"round {number + 1}/{rounds}: {steps}")
    whole = [[sum(one.values()) for one in runs] for runs in (trained, launched)]
    return Result(
        name="own-loop",
        question=f"ResNet-20, batch 128, {LEAVES} leaves of 32, {WORKERS} workers: a script's own loop under `lockstep "
        "launch` next to `lockstep train` with the same recipe, and where the difference comes from. One sample is "
        f"{log_every} steps of a run of its own, after {log_every} to warm up.",
        figures=[Figure("launch / train, speed", "ratio", paired(whole[0], whole[1]), Target.not_behind())],
        table=_table(trained, launched),
        measured=[
            Figure("a step of `lockstep train`", "milliseconds", whole[0]),
            Figure("a step of the script", "milliseconds", whole[1]),
        ],
        notes=[
            "Milliseconds of a step of the first worker, medians. The exchange includes waiting for the slower worker. "
            "The script's samples are read one by one and in the midst of the step, where `lockstep train` reads a "
            "whole leaf ahead; `num_workers` would move that to other cores. Without a span are seeding, copies of "
            "gradients, the looks at the generators, and what the script does between them."
        ],
    )


def _train(directory: Path, log_every: int) -> Row:
    sizes = {"workers": WORKERS, "leaves": LEAVES, "steps": 2 * log_every, "log_every": log_every}
    return contestants.lockstep(directory, "resnet20", **sizes, options=PLAIN).train_rows[-1]  # type: ignore[arg-type]


def _launch(directory: Path, log_every: int) -> Row:
    command = [*LOCKSTEP, "launch", "--workers", str(WORKERS), "--run", str(directory / "run")]
    command += ["--set", f"log_every={log_every}", "--set", "checkpoints.every_seconds=0"]
    command += [str(SCRIPT), "--steps", str(2 * log_every), "--leaves", str(LEAVES)]
    directory.mkdir(parents=True)
    with contestants.started_process(command, directory / "log") as process:
        contestants.finish(process, directory / "log", time.time())
    return [row for row in metrics.read(directory / "run" / "metrics.jsonl") if row["kind"] == "train"][-1]


def _milliseconds(row: Row) -> dict[str, float]:
    """Of a step, by span; the steps of the row are those since the one before, as many as before that."""
    steps = row["step"] / 2
    spans = {name: 1000 * row["spans"].get(name, 0.0) / steps for name in SPANS}
    return {**spans, OTHER: 1000 / row["steps_per_second"] - sum(spans.values())}


def _table(trained: list[dict[str, float]], launched: list[dict[str, float]]) -> list[list[str]]:
    rows = [["part of a step", "`lockstep train`", "the script", "difference"]]
    for name in (*SPANS, OTHER):
        one, other = median(run[name] for run in trained), median(run[name] for run in launched)
        rows.append([name, f"{one:.2f} ms", f"{other:.2f} ms", f"{other - one:+.2f} ms"])
    return rows
