"""Which loggers a job has: what was asked for now, and when the run began."""

from __future__ import annotations

import pytest

from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.loggers import names_of
from lockstep.recipes.demo import demo
from lockstep.request import Request, check_script_options, resolve_job


def names(stored: Job | None = None, **asked: object) -> tuple[str, ...]:
    return names_of(resolve_job(Request(workers=1, **asked), demo(), stored))  # type: ignore[arg-type]


def test_a_resume_keeps_tensorboard_off_until_it_is_named() -> None:
    assert names() == ("tensorboard",)
    off = resolve_job(Request(tensorboard=False, loggers=["csv"]), demo(), None)
    assert names(off) == ("csv",)
    assert names(off, loggers=["csv", "tensorboard"]) == ("tensorboard", "csv")
    assert names(off, tensorboard=True) == ("tensorboard", "csv")


def test_tensorboard_that_was_named_can_be_turned_off() -> None:
    """Also where an older version stored it among the others."""
    on = resolve_job(Request(loggers=["tensorboard", "csv"]), demo(), None)
    for stored in (on, Job(workers=1, loggers=("tensorboard", "csv")), Job(workers=1, loggers=("csv",))):
        assert names(stored) == ("tensorboard", "csv")
        assert names(stored, tensorboard=False) == ("csv",)


def test_both_at_once_contradict_each_other() -> None:
    with pytest.raises(UserError, match=r"^--no-tensorboard and --logger tensorboard contradict each other: leave one"):
        names(tensorboard=False, loggers=["tensorboard"])


def test_histograms_that_nobody_shows_are_refused_if_they_are_asked_for() -> None:
    for stored, loggers in ((None, None), (None, ["csv"]), (Job(workers=1, tensorboard=False), None)):
        with pytest.raises(
            UserError, match=r"^--histograms-every is for loggers that show pictures, and there is none"
        ):
            names(stored, tensorboard=False, loggers=loggers, histograms_every=1)
    assert names(histograms_every=1) == ("tensorboard",)
    assert names(Job(workers=1, histograms_every=1), tensorboard=False) == ()
    with pytest.raises(UserError, match=r"^a script shows no histograms"):
        check_script_options(Request(histograms_every=1))
