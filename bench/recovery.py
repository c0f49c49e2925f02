"""What a `kill -9` costs: Lockstep, torchft, and torchrun and Ray Train restarting from a checkpoint, under the same
kills."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import disturbed, disturbed_ray, losses
from bench.disturbed import GLOBAL_BATCH, LEAVES, WORLD, Contestant, Run
from bench.plan import is_there
from bench.ratio import Target
from bench.results import Figure, Result
from bench.rounds import Say

OURS = "Lockstep"
CONTESTANTS: dict[str, Contestant] = {
    OURS: disturbed.lockstep,
    "torchft": disturbed.torchft,
    "torchrun": disturbed.torchrun,
    "Ray Train": disturbed_ray.ray_train,
}
NEEDS = {"torchft": "torchft", "Ray Train": "ray.train"}

MEDIAN_TARGET = Target(1.0, at_least=False)
WORST_TARGET = Target(3.0, at_least=False)
NONE_TARGET = Target(0.0, at_least=False)


@dataclass(frozen=True)
class Pair:
    """A contestant's run without kills, and the one with them."""

    calm: Run
    killed: Run

    @property
    def time_lost(self) -> list[float]:
        return losses.time_lost(self.killed.journals, self.killed.kills)

    @property
    def steps_redone(self) -> float:
        """All of them; Lockstep does single leaves again."""
        leaves = sum(recomputed for recomputed, _ in leaves_recomputed(self.killed))
        return losses.steps_redone(self.killed.journals) + leaves / LEAVES

    @property
    def crashes(self) -> list[str]:
        return self.calm.crashes + self.killed.crashes

    @property
    def samples_lost(self) -> int:
        return losses.samples_lost(self.killed.journals, GLOBAL_BATCH)


def recovery(quick: bool, scratch: Path, say: Say) -> Result:
    kills, every = (2, 20) if quick else (20, 40)
    steps, kill_at = every * (kills + 1), [every * (number + 1) for number in range(kills)]
    pairs: dict[str, Pair] = {}
    notes: list[str] = []
    for name, train in CONTESTANTS.items():
        if name in NEEDS and not is_there(NEEDS[name]):
            notes.append(f"{name} is not installed: pip install -c constraints.txt -e '.[peers]'")
            continue
        try:
            pairs[name] = Pair(train(scratch / f"{name}-calm", steps, []), train(scratch / name, steps, kill_at))
        except RuntimeError as error:
            if name == OURS:
                raise
            say(f"{name}: {error}")
            notes.append(f"{name} did not get through, and is left out: {str(error).splitlines()[0]}")
            continue
        say(f"{name}: " + ", ".join(f"{lost:.2f}" for lost in pairs[name].time_lost) + " s lost")
        if crashes := pairs[name].crashes:
            notes.append(f"{name}: processes ended by themselves {len(crashes)} times, the first with: {crashes[0]}")
    return Result(
        name="recovery",
        question=f"ResNet-20, batch {GLOBAL_BATCH}, {WORLD} workers, {steps} steps: what a `kill -9` costs. {kills} "
        f"kills, each when the training first reaches a multiple of {every} steps; next to torchft, and to DDP that "
        "torchrun or Ray Train restarts from a checkpoint of every 50 steps, under the same kills.",
        figures=_figures(pairs),
        table=_table(pairs),
        measured=[series for name, pair in pairs.items() for series in _measured(name, pair)],
        notes=[METHOD, *notes],
    )


METHOD = (
    "Everyone runs twice, one after the other: without kills and with them. Time lost is the duration of the step "
    "that the kill hit (of the two after it, the longer one) less the median step of that run; a step is done when "
    "the first process has done it for the first time, so that going back to a checkpoint counts with the steps done "
    "again. Kills come at different moments of a step. Everyone replaces the dead: Lockstep, torchrun and Ray Train "
    "themselves, for torchft the benchmark does. A step computed in vain or again by the same process is redone; for "
    "Lockstep these are single leaves. Samples are lost when a step goes into the weights without those of a missing "
    "replica, which is how torchft goes on. Differences are between the final weights of the run with kills and of "
    "one without. torchft takes a replica for dead after 1 s without a heartbeat (by default 5 s) and waits 1 s for "
    "one that does not join (by default 60 s). It reads its samples by the number of the step, so that only those of "
    "a missing replica are lost and none comes twice."
)


def leaves_recomputed(run: Run) -> list[tuple[int, int]]:
    """By Lockstep, for every generation that a death brought about: how many, and how many the dead can have had."""
    found, workers, deaths = [], WORLD, 0
    for row in run.rows:
        if row["kind"] == "death":
            deaths += 1
        elif row["kind"] == "generation":
            if "death" in row["causes"]:
                found.append((row["recomputed_leaves"], deaths * math.ceil(LEAVES / workers)))
            workers, deaths = row["workers"], 0
    return found


def _figures(pairs: dict[str, Pair]) -> list[Figure]:
    ours = pairs[OURS]
    surplus = max(max(0, recomputed - had) for recomputed, had in leaves_recomputed(ours.killed))
    changed = int(ours.calm.digest != ours.killed.digest)
    figures = [
        Figure(f"{OURS}: time lost by a kill", "seconds", ours.time_lost, MEDIAN_TARGET),
        Figure(f"{OURS}: the worst kill", "seconds", [max(ours.time_lost)], WORST_TARGET, exact=True),
        Figure(f"{OURS}: most leaves recomputed beyond the victim's", "count", [surplus], NONE_TARGET, exact=True),
        Figure(f"{OURS}: digests changed by the kills", "count", [changed], NONE_TARGET, exact=True),
    ]
    peers = [(name, pair) for name, pair in pairs.items() if name != OURS]
    return figures + [Figure(f"{name}: time lost by a kill", "seconds", pair.time_lost) for name, pair in peers]


def _table(pairs: dict[str, Pair]) -> list[list[str]]:
    """Side by side: a column for each."""
    columns = [column(pair) for pair in pairs.values()]
    rows = [[what, *(one[what] for one in columns)] for what in columns[0]]
    return [["", *pairs], *rows]


def column(pair: Pair) -> dict[str, str]:
    lost, redone = pair.time_lost, pair.steps_redone
    largest, relative = losses.difference(pair.calm.weights, pair.killed.weights)
    return {
        "time lost by a kill: median": f"{median(lost):.2f} s",
        "time lost by a kill: worst": f"{max(lost):.2f} s",
        "steps redone per kill": f"{redone / len(lost):.2f}",
        "samples computed again, in all": f"{redone * GLOBAL_BATCH:.0f}",
        "samples lost, in all": f"{pair.samples_lost}",
        "final weights: largest difference": f"{largest:.2g}",
        "final weights: difference, L2, relative": f"{relative:.2g}",
        "processes that ended by themselves": f"{len(pair.crashes)}",
        "median step without kills": f"{losses.usual_step(pair.calm.journals):.3f} s",
        "first step to last, without kills": f"{losses.whole_seconds(pair.calm.journals):.1f} s",
        "first step to last, with kills": f"{losses.whole_seconds(pair.killed.journals):.1f} s",
    }


def _measured(name: str, pair: Pair) -> list[Figure]:
    series = [Figure(f"{name}: time lost by a kill", "seconds", pair.time_lost)]
    if recomputed := [float(leaves) for leaves, _ in leaves_recomputed(pair.killed)]:
        own = [row["seconds"] for row in pair.killed.rows if row["kind"] == "recovery"]
        series.append(Figure(f"{name}: leaves recomputed by a kill", "count", recomputed))
        series.append(Figure(f"{name}: time lost by a death or a join, as it says itself", "seconds", own))
    return series
