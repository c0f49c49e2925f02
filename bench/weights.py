"""`lockstep.weights` of a ResNet-50, next to copying as many bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch

from bench.ratio import Target
from bench.results import Figure, Result
from bench.rounds import Say, interleaved
from lockstep import weights
from lockstep.models.resnet import resnet
from lockstep.models.small import small

LIMIT = 1.2
OTHER_COPY = "numpy.copyto"
"""Of an array to another one that is there: no memory of torch takes part."""
REPEATS = 5
"""In a round; their median is its sample."""


def weights_as_data(quick: bool, scratch: Path, say: Say) -> Result:
    torch.set_num_threads(1)  # numpy copies with one
    model = small(10, (3, 32, 32)) if quick else resnet(1000, (3, 224, 224))
    found = weights.get(model)
    flat = weights.get_flat(model)
    tensor = torch.empty(flat.size).copy_(torch.from_numpy(flat))  # in memory of torch, as the model's are
    array = flat.copy()
    timed: dict[str, Callable[[], object]] = {
        "get": lambda: weights.get(model),
        "a copy out": lambda: tensor.numpy().copy(),
        "get_flat": lambda: weights.get_flat(model),
        "set": lambda: weights.set(model, found),
        "a copy in": lambda: tensor.copy_(torch.from_numpy(flat)),
        "set_flat": lambda: weights.set_flat(model, flat),
        OTHER_COPY: lambda: np.copyto(array, flat),
    }
    contestants = {name: _contestant(work) for name, work in timed.items()}
    samples = interleaved(contestants, 2 if quick else 20, scratch, say)
    pairs = {"get": "a copy out", "get_flat": "a copy out", "set": "a copy in", "set_flat": "a copy in"}
    return Result(
        name="weights",
        question=f"`lockstep.weights` of a ResNet-50 ({flat.size / 1e6:.1f} million parameters, "
        f"{flat.nbytes / 1e6:.0f} MB) next to copying one tensor of as many bytes, out to a new array of numpy and in "
        f"again: at most {LIMIT} times as long is wanted of `get` and `set`.",
        figures=[
            Figure(
                f"{name}: time, as a multiple of {copy}",
                "ratio",
                [one / two for one, two in zip(samples[name], samples[copy], strict=True)],
                Target(LIMIT, at_least=False) if name in ("get", "set") else None,
            )
            for name, copy in pairs.items()
        ]
        + [
            Figure(
                f"{name}: time, as a multiple of {OTHER_COPY}",
                "ratio",
                [one / two for one, two in zip(samples[name], samples[OTHER_COPY], strict=True)],
            )
            for name in ("set", "a copy in")
        ],
        measured=[Figure(name, "milliseconds", series) for name, series in samples.items()],
        notes=[
            "One thread. Out to new memory takes the time of the system that hands out its pages too; in needs none.",
            "The aim is about copies between memory of torch and of numpy, as both functions make them. numpy's copy "
            "of an array to another one is a different yardstick: `set` and torch's own copy stand next to it too.",
        ],
    )


def _contestant(work: Callable[[], object]) -> Callable[[Path], float]:
    def measure(_: Path) -> float:
        return median(_milliseconds(work) for _ in range(REPEATS))

    return measure


def _milliseconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()  # what it returns is freed within the time, as it is with a copy
    return 1e3 * (perf_counter() - started)
