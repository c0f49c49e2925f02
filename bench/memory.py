"""Peak memory of a Lockstep worker next to a process of DDP, for a small model and for one of 60 million parameters."""

from __future__ import annotations

from pathlib import Path

from bench import contestants
from bench.ratio import paired
from bench.results import Figure, Result
from bench.rounds import Contestant, Say, interleaved

MODELS = {"resnet20": "ResNet-20", "dense60m": "dense, 60 M parameters"}
LEAVES = 4


def memory(quick: bool, scratch: Path, say: Say) -> Result:
    steps = 3 if quick else 5
    whole: dict[str, list[float]] = {}
    runs: dict[str, Contestant] = {}
    for recipe, words in MODELS.items():
        whole[_saving(words)] = []
        runs[_training(words)] = _lockstep(recipe, steps, whole[_saving(words)])
        runs[_ddp_name(words)] = _ddp(recipe, steps)
    samples = interleaved(runs, 1 if quick else 2, scratch, say) | whole
    figures = [
        Figure(f"{ours} / DDP", "ratio", paired(samples[ours], samples[_ddp_name(words)]))
        for words in MODELS.values()
        for ours in (_training(words), _saving(words))
    ]
    return Result(
        name="memory",
        question="Two processes, batch 128, micro-batches of 32: the most memory (VmHWM) that a Lockstep worker and a "
        "process of DDP ever had resident; of the two processes, the larger one.",
        figures=figures,
        measured=[Figure(name, "MiB", values) for name, values in sorted(samples.items())],
        notes=[
            "Lockstep's figure with the end includes the evaluation, the checkpoint and the digest; DDP saves nothing. "
            "There are too few rounds for intervals."
        ],
    )


def _training(words: str) -> str:
    return f"{words}: Lockstep, training"


def _saving(words: str) -> str:
    return f"{words}: Lockstep, with the end"


def _ddp_name(words: str) -> str:
    return f"{words}: DDP"


def _lockstep(recipe: str, steps: int, whole: list[float]) -> Contestant:
    def run(directory: Path) -> float:
        done = contestants.lockstep(directory, recipe, workers=2, leaves=LEAVES, steps=steps, watched=True)
        whole.append(done.watch.peak)
        # Not the last row: by the next sample after it, the checkpoint's snapshot may have been taken.
        return done.watch.peak_until(done.train_rows[-2]["time"])

    return run


def _ddp(recipe: str, steps: int) -> Contestant:
    def run(directory: Path) -> float:
        processes = contestants.ddp(directory, recipe, world=2, leaves=LEAVES, steps=steps)
        return max(process.peak_mib for process in processes)

    return run
