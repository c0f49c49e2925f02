"""`lockstep diff`: where two runs part. What they recorded is compared, then the steps in question are done again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep import api, rerun, rundirectory, selection, strategies
from lockstep.errors import JobError, UserError
from lockstep.report import difference
from lockstep.report.difference import Parting, Record, causes, unrecorded
from lockstep.request import Request
from lockstep.rerun import Found
from lockstep.rundirectory import RunDirectory

Progress = Callable[[int, int], None]
"""Told how many steps are done, and how many there will be."""


@dataclass(frozen=True)
class Difference:
    """Where two runs part, and why, as far as it could be found out."""

    first: Record
    second: Record
    known: Parting
    found: Found | None
    """What came out of doing the steps in between again."""
    why_not: str | None
    """Why they were not."""

    def __str__(self) -> str:
        return difference.text(self.first, self.second, self.known, self.found, self.why_not)


def to_plain(difference: Difference) -> dict[str, Any]:
    """What was found out, and all that may explain it."""
    return {
        "known": dataclasses.asdict(difference.known),
        "found": None if difference.found is None else dataclasses.asdict(difference.found),
        "why_not": difference.why_not,
        "causes": [dataclasses.asdict(one) for one in causes(difference.first, difference.second)],
        "unrecorded": unrecorded(difference.first, difference.second),
    }


def diff(first: str, second: str, *, again: bool = True, progress: Progress = lambda done, until: None) -> Difference:
    directories = [rundirectory.existing(run) for run in (first, second)]
    one, other = (difference.read(directory) for directory in directories)
    known, found, why_not = difference.parting(one, other), None, None
    if known.parted is not None and again:
        try:
            found = _do_again(directories, known.agreed, known.parted, progress)
        except (UserError, JobError) as error:
            why_not = str(error)
    return Difference(one, other, known, found, why_not)


def _do_again(directories: list[RunDirectory], agreed: int | None, until: int, progress: Progress) -> Found:
    plans = []
    for directory in directories:
        recipe, job = directory.read_config()
        selection.refuse_script(recipe, directory)
        if strategies.bits(job) == "none":
            raise UserError(f"{directory.name} is not reproducible, so they would come out otherwise every time")
        plans.append(api.plan_of(recipe, job, directory, None, Request()))
    first, second = plans
    return rerun.find(first, second, rerun.common_start(plans, agreed), until, lambda done: progress(done, until))
