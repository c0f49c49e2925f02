"""Everyone next to each other, a row for each and a column for each topic: a figure of this session, or why there is
none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from bench.plan import OURS
from bench.ratio import Estimate, estimate
from bench.results import UNITS

BARE, DDP, TORCHRUN, TORCHFT = "a bare loop", "DDP", "torchrun with restarts", "torchft"
RAY_TRAIN, OBJECTS, KERAS, HOROVOD = "Ray Train", "object-store averaging", "Keras `fit`", "Horovod"
PEERS = (OURS, BARE, DDP, TORCHRUN, TORCHFT, RAY_TRAIN, OBJECTS, KERAS, HOROVOD)

ONE, TWO, KILL, START, MEMORY, LOADING = "one worker", "two workers", "a kill", "start-up", "memory", "data loading"
TOPICS = {
    ONE: ("images/s", "images/s of one process"),
    TWO: ("images/s", "images/s of two processes"),
    KILL: ("seconds", "seconds lost by a kill"),
    START: ("seconds", "seconds to the first step"),
    MEMORY: ("MiB", "MiB at most in a process"),
    LOADING: ("images/s", "images/s that are fed"),
}
"""What each is in: the unit, and words for pictures. Of the first two and the last, more is better."""

ALONE = "it is one process, and nobody goes on without it"
LIKE_BARE = "it reads by torch's DataLoader, as a bare loop does"
REASONS: dict[tuple[str, str], str] = {
    (BARE, KILL): ALONE,
    (DDP, KILL): "a death ends it; what starts it again is torchrun",
    (OBJECTS, KILL): "a death ends the driver, whose `ray.get` raises",
    (KERAS, KILL): ALONE,
    (KERAS, TWO): "on its torch back end `fit` trains in one process",
    (DDP, LOADING): LIKE_BARE,
    (TORCHRUN, LOADING): LIKE_BARE,
    (TORCHFT, LOADING): LIKE_BARE,
    (OBJECTS, LOADING): LIKE_BARE,
}


@dataclass(frozen=True)
class Cell:
    """What one of them has come to in a topic."""

    samples: tuple[float, ...] = ()
    reason: str = ""
    """Why there are no samples."""

    @property
    def estimate(self) -> Estimate:
        return estimate(self.samples)


Cells = Mapping[tuple[str, str], Cell]
"""By peer and topic."""


def reason(peer: str, topic: str) -> str | None:
    """Why this is never measured; None if it is."""
    if peer == HOROVOD:
        return f"Horovod 0.28.1 does not build against torch {version('torch').partition('+')[0]}"
    return REASONS.get((peer, topic))


def cells(documents: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Cell]:
    """From what the comparisons have written (`Result.cells`); every place has one."""
    found: dict[tuple[str, str], Cell] = {}
    for document in documents.values():
        for peer, topic, samples, why in document.get("cells", ()):
            found[peer, topic] = Cell(tuple(samples), why)
    for peer in PEERS:
        for topic in TOPICS:
            known = reason(peer, topic)
            if known is not None:
                found[peer, topic] = Cell(reason=known)
            found.setdefault((peer, topic), Cell(reason="the session has not come to it yet"))
    return found


def table(filled: Cells) -> list[list[str]]:
    """The head first; reasons are numbered, and below the table (`notes`)."""
    numbers = {why: number for number, why in enumerate(reasons(filled), start=1)}
    head = ["", *(words for _, words in TOPICS.values())]
    return [head, *([peer, *(_text(filled[peer, topic], topic, numbers) for topic in TOPICS)] for peer in PEERS)]


def _text(cell: Cell, topic: str, numbers: Mapping[str, int]) -> str:
    if not cell.samples:
        return f"not measured ({numbers[cell.reason]})"
    form, one = UNITS[TOPICS[topic][0]], cell.estimate
    middle = form.format(one.median)
    if one.low == -float("inf"):
        return f"{middle} (too few rounds)"
    return f"{middle} ({form.format(one.low)} to {form.format(one.high)})"


def reasons(filled: Cells) -> list[str]:
    """Each of them once, in the order of the table."""
    found = [filled[peer, topic].reason for peer in PEERS for topic in TOPICS if not filled[peer, topic].samples]
    return list(dict.fromkeys(found))


def notes(filled: Cells) -> list[str]:
    return [f"({number}) {why}." for number, why in enumerate(reasons(filled), start=1)]


def verdicts(documents: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Every ratio of the comparisons with its interval and what it means."""
    rows = [["ratio", "median", "95 % interval", "aim", "verdict"]]
    for document in documents.values():
        for figure in document["figures"]:
            if figure["unit"] == "ratio":
                rows.append(_ratio(figure))
    return rows


def _ratio(figure: Mapping[str, Any]) -> list[str]:
    target, interval = figure["target"], figure["interval"]
    bounds = "too few rounds" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
    aim = "none" if target is None else f"{'≥' if target['at_least'] else '≤'} {target['bound']:.2f}"
    return [figure["what"], f"{figure['median']:.3f}", bounds, aim, figure["verdict"] or "no aim"]


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|---" * len(rows[0]) + "|", *body]
