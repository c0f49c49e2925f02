"""Silent corruption: members report digests of their state and of leaves, and this decides who is wrong. Pure.

Every member reports the digest of its state, of one leaf of its own, and of one leaf of another member. If the states
differ, the majority is right; without one, everyone replays the steps since the last verified snapshot alone. If two
computations of a leaf differ, everyone computes it once more. Whoever is wrong is expelled, and the run goes back to
the last verified snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lockstep.wire import Message


@dataclass(frozen=True)
class Report:
    """What a member found at a step: digests of its state and of leaves."""

    state: str
    leaves: dict[int, str]


@dataclass(frozen=True)
class Replay:
    """What a member found when it did the steps since the last verified snapshot again, alone."""

    state: str
    """Empty if it has no snapshot to replay from."""
    diverged: int | None
    """The first step in which a leaf of its own had other bits than in the replay."""


@dataclass(frozen=True)
class Agreed:
    """All members have the same bits."""


@dataclass(frozen=True)
class Disputed:
    """Not decided yet: this message goes to all members, and each answers."""

    message: Message


@dataclass(frozen=True)
class Wrong:
    """These members computed other bits, and why that is known."""

    members: dict[int, str]


@dataclass(frozen=True)
class Unnamed:
    """Someone was wrong, and it cannot be said who, because not all could replay it: go back, and see."""


@dataclass(frozen=True)
class Undecided:
    """Someone is wrong, and will be again."""

    sentence: str


Verdict = Agreed | Disputed | Wrong | Unnamed | Undecided


@dataclass
class Verification:
    verified: int
    """The last step whose state all members agreed on; -1 before the first generation."""
    holders: set[int] = field(default_factory=set)
    """Who has a snapshot of it."""
    scores: tuple[int, dict[str, Any] | None] = (-1, None)
    """Evaluated step and best figures at that time."""
    _reports: dict[int, Report] = field(default_factory=dict)
    _answers: dict[int, Report | Replay] = field(default_factory=dict)
    _disputed: Disputed | None = None
    _unnamed_at: int | None = None

    def begin(self, step: int, members: list[int], scores: tuple[int, dict[str, Any] | None]) -> None:
        """What everyone starts from is verified by definition: initial weights, or a checkpoint with its checksum."""
        self.verified, self.holders, self.scores = step, set(members), scores
        self.reset()

    def reset(self) -> None:
        """A new generation: whoever is in it reports anew."""
        self._reports.clear()
        self._answers.clear()
        self._disputed = None

    def report(self, worker: int, report: Report, members: list[int]) -> Verdict | None:
        self._reports[worker] = report
        if self._disputed is not None or any(id_ not in self._reports for id_ in members):
            return None
        return self._judge({id_: self._reports[id_] for id_ in members})

    def answer(self, worker: int, answer: Report | Replay, members: list[int]) -> Verdict | None:
        """A member's second computation."""
        self._answers[worker] = answer
        if self._disputed is None or any(id_ not in self._answers for id_ in members):
            return None
        return self._judge_again({id_: self._answers[id_] for id_ in members})

    def _judge(self, reports: dict[int, Report]) -> Verdict:
        states = {id_: report.state for id_, report in reports.items()}
        if len(set(states.values())) > 1:
            right = majority(states)
            if right is not None:
                return Wrong({id_: "its state has other bits" for id_, state in states.items() if state != right})
            return self._dispute({"type": "dispute", "replay": True, "leaves": []})
        leaves: dict[int, set[str]] = {}
        for report in reports.values():
            for leaf, digest in report.leaves.items():
                leaves.setdefault(leaf, set()).add(digest)
        differing = sorted(leaf for leaf, digests in leaves.items() if len(digests) > 1)
        if differing:
            return self._dispute({"type": "dispute", "replay": False, "leaves": differing})
        return Agreed()

    def _dispute(self, message: Message) -> Disputed:
        self._disputed = Disputed(message)
        return self._disputed

    def _judge_again(self, answers: dict[int, Report | Replay]) -> Verdict:
        if any(answer.state == "" for answer in answers.values()):
            return self._return_once()
        right = majority({id_: answer.state for id_, answer in answers.items()})
        if right is None:
            return Undecided("the members differ, and differ again when they repeat it, so that nobody can be believed")
        wrong = {id_: "its state has other bits" for id_, answer in answers.items() if answer.state != right}
        replays = {id_: answer for id_, answer in answers.items() if isinstance(answer, Replay)}
        if replays:
            wrong |= self._diverged(replays, right)
        disputed = {leaf for answer in answers.values() if isinstance(answer, Report) for leaf in answer.leaves}
        for leaf in sorted(disputed):
            wrong |= self._wrong_in(leaf, answers)
        if not wrong or len(wrong) == len(answers):
            return Undecided("the members differ, and a repetition does not show who is wrong")
        return Wrong(wrong)

    def _return_once(self) -> Verdict:
        """After going back everyone has the snapshot, so that this does not happen twice in a row."""
        if self._unnamed_at == self.verified:
            return Undecided("the members differ, and differ again after going back")
        self._unnamed_at = self.verified
        return Unnamed()

    def _diverged(self, replays: dict[int, Replay], right: str) -> dict[int, str]:
        """Whoever departed first from what the replay gives spoiled it for the others."""
        steps = {id_: replay.diverged for id_, replay in replays.items() if replay.diverged is not None}
        if steps:
            first = min(steps.values())
            return {id_: f"its leaves of step {first} had other bits" for id_, at in steps.items() if at == first}
        return {id_: "its state has other bits" for id_ in replays if self._reports[id_].state != right}

    def _wrong_in(self, leaf: int, answers: dict[int, Report | Replay]) -> dict[int, str]:
        second = {id_: answer.leaves.get(leaf, "") for id_, answer in answers.items() if isinstance(answer, Report)}
        right = majority(second)
        first = {id_: report.leaves[leaf] for id_, report in self._reports.items() if leaf in report.leaves}
        return {
            id_: f"its gradient of leaf {leaf} had other bits"
            for id_ in second
            if right is not None and (second[id_] != right or first.get(id_, right) != right)
        }


def majority(values: dict[int, str]) -> str | None:
    """What more than half of the members say."""
    value, count = Counter(values.values()).most_common(1)[0]
    return value if 2 * count > len(values) else None
