"""Everyone with one process and with two: images per second, start-up, memory. One run gives all three."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench import everyone, sidebyside
from bench.everyone import Contestant, Size
from bench.plan import FAILED, OURS, Comparison, Measurement, is_failure
from bench.ratio import MIN_ROUNDS, Target, paired
from bench.results import Figure, Result
from bench.sidebyside import BARE, DDP, KERAS, MEMORY, OBJECTS, ONE, PEERS, RAY_TRAIN, START, TORCHFT, TORCHRUN, TWO

CONTROL = "a bare loop, again"
"""The same program once more: how far from 1 its ratio strays is the noise of the session."""

CONTESTANTS: dict[str, tuple[Contestant, str | None, float]] = {
    OURS: (everyone.lockstep, None, 13.0),
    BARE: (everyone.bare, None, 12.0),
    CONTROL: (everyone.bare, None, 12.0),
    DDP: (everyone.ddp, None, 13.0),
    TORCHRUN: (everyone.torchrun, None, 15.0),
    TORCHFT: (everyone.torchft, "torchft", 14.0),
    RAY_TRAIN: (everyone.ray_train, "ray.train", 28.0),
    OBJECTS: (everyone.objects, "ray", 26.0),
    KERAS: (everyone.keras_fit, "keras", 18.0),
}
"""Who, what it needs, and seconds that it takes about."""

WORLDS = {1: ONE, 2: TWO}


def plan(quick: bool) -> list[Measurement]:
    """Every other round runs backwards, so that a drift hits all alike."""
    found: list[Measurement] = []
    for number in range(1 if quick else MIN_ROUNDS):
        one_round = [_measurement(number, world, who, quick) for world in WORLDS for who in takers(world)]
        found += one_round if number % 2 == 0 else reversed(one_round)
    return found


def takers(world: int) -> list[str]:
    """Who runs with so many processes."""
    names = [who for who in CONTESTANTS if sidebyside.reason(who, WORLDS[world]) is None]
    return names if world == 1 else [who for who in names if who != CONTROL]


def _measurement(number: int, world: int, who: str, quick: bool) -> Measurement:
    run, needs, seconds = CONTESTANTS[who]
    size = Size(1, 3) if quick else Size(2, 10) if world == 1 else Size(3, 14)

    def measure(directory: Path) -> dict[str, float]:
        return asdict(run(directory, world, size))

    return Measurement(_key(number, world, who), who, seconds, measure, needs)


def _key(number: int, world: int, who: str) -> str:
    return f"speed, round {number + 1}, {world} process{'es' * (world > 1)}, {who}"


def conclude(entries: Mapping[str, Any], quick: bool) -> Result:
    rounds = range(1 if quick else MIN_ROUNDS)
    found = {
        (world, who): [
            entries.get(_key(number, world, who), {FAILED: "the session was interrupted"}) for number in rounds
        ]
        for world in WORLDS
        for who in takers(world)
    }
    speed = partial(_ratio, found, "images_per_second")
    rivals = [who for who in takers(1) if who not in (OURS, CONTROL)]
    figures: list[Figure | None] = [speed((1, OURS), (1, who), Target.not_behind()) for who in rivals]
    figures.append(speed((1, CONTROL), (1, BARE), Target.not_behind()))
    figures += [speed((2, OURS), (2, who), Target.not_behind()) for who in takers(2)[1:]]
    figures += [_ratio(found, "images_per_second", (2, who), (1, who), Target.linear(2)) for who in takers(2)]
    for key in ("first_step_seconds", "peak_mib"):
        figures += [_ratio(found, key, (2, OURS), (2, who), Target.not_above()) for who in takers(2)[1:]]
        figures.append(_ratio(found, key, (1, OURS), (1, KERAS), Target.not_above()))
    return Result(
        name="peers-speed",
        question=QUESTION,
        figures=[figure for figure in figures if figure is not None],
        measured=[series for key, unit in UNITS.items() for series in _series(found, key, unit)],
        notes=[NOTE],
        cells=_cells(found),
    )


QUESTION = (
    "ResNet-20, batch 128, processes of one thread each, everyone with the same micro-batches of 32 (Keras with one "
    "batch of 128, as its users have it). Two bare loops never meet: what two cores could do if communication and "
    "waiting were free. A run gives the images/s of its median step, the seconds from the command to the end of the "
    "first step, and the most memory (VmHWM) that a process had. Start-up and memory are compared with two "
    "processes; Keras, which has one, with one."
)
NOTE = (
    "Ray Train's time begins on a cluster that is there already; object-store averaging starts its own. Lockstep's "
    "memory includes the evaluation, the checkpoint and the digest at the end, which the others do not do."
)
UNITS = {"images_per_second": "images/s", "first_step_seconds": "seconds", "peak_mib": "MiB"}
WORDS = {"images_per_second": "images/s", "first_step_seconds": "start-up", "peak_mib": "memory"}

Found = Mapping[tuple[int, str], list[Any]]


def _name(world: int, who: str) -> str:
    return f"{who}, {world} process{'es' * (world > 1)}"


def _ratio(found: Found, key: str, above: tuple[int, str], below: tuple[int, str], target: Target) -> Figure | None:
    """Of the rounds in which both were measured; None if there is none."""
    both = [
        (one[key], other[key])
        for one, other in zip(found[above], found[below], strict=True)
        if not is_failure(one) and not is_failure(other)
    ]
    if not both:
        return None
    ratios = paired(*zip(*both, strict=True))
    rival = "two loops that never meet" if below == (2, BARE) else below[1]
    what = f"{above[1]} / {rival}" if above[0] == below[0] else f"{above[1]}: two processes / one"
    place = f", {above[0]} process{'es' * (above[0] > 1)}" if above[0] == below[0] else ""
    return Figure(f"{WORDS[key]}{place}: {what}", "ratio", ratios, target)


def _series(found: Found, key: str, unit: str) -> list[Figure]:
    values = {name: [one[key] for one in entries if not is_failure(one)] for name, entries in found.items()}
    return [Figure(f"{_name(*name)}: {WORDS[key]}", unit, samples) for name, samples in values.items() if samples]


def _cells(found: Found) -> list[tuple[str, str, list[float], str]]:
    places = [(1, ONE, "images_per_second"), (2, TWO, "images_per_second")]
    places += [(2, START, "first_step_seconds"), (2, MEMORY, "peak_mib")]
    filled = []
    for peer in PEERS:
        for world, topic, key in places:
            # Start-up and memory of whoever has one process only.
            entries = found.get((world, peer)) or (found.get((1, peer)) if topic in (START, MEMORY) else None)
            if entries is not None:
                filled.append(cell(peer, topic, entries, key))
    return filled


def cell(peer: str, topic: str, entries: list[Any], key: str) -> tuple[str, str, list[float], str]:
    """The samples, or the first reason why there are none."""
    samples = [float(one[key]) for one in entries if not is_failure(one)]
    return (peer, topic, samples, "" if samples else f"{peer}: {entries[0][FAILED]}")


SPEED = Comparison("peers-speed", plan, conclude)
