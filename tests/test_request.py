"""What was asked for now, and what was asked for when the run began."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.recipes.demo import demo
from lockstep.request import Request, default_workers, resolve_job


def test_a_minimum_that_nobody_asks_for_now_follows_the_number_of_workers() -> None:
    """The control: one that is asked for is refused if it cannot be."""
    stored = Job(workers=4, min_workers=3)
    assert resolve_job(Request(), demo(), stored).min_workers == 3
    assert resolve_job(Request(workers=1), demo(), stored).min_workers == 1
    assert resolve_job(Request(workers=1, listen="127.0.0.1"), demo(), stored).min_workers == 3
    with pytest.raises(UserError, match="--min-workers takes 1 to 1, the number of --workers, not 3"):
        resolve_job(Request(workers=1, min_workers=3), demo(), replace(stored, min_workers=0))


def test_no_worker_of_its_own_is_remembered_where_hosts_may_join() -> None:
    stored = Job(workers=0, listen="127.0.0.1")
    assert resolve_job(Request(listen="127.0.0.1"), demo(), stored).workers == 0
    assert resolve_job(Request(), demo(), stored).workers == default_workers(demo())
