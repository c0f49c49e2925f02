"""What the supervisor makes of commands and signals, without a process."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.config import Job
from lockstep.data import open_dataset
from lockstep.progress import Silent
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor import events as e
from lockstep.supervisor.plan import Plan
from lockstep.supervisor.run import Supervisor
from tests.alone import tiny_recipe


def supervisor(path: Path, **job: Any) -> Supervisor:
    recipe = tiny_recipe()
    plan = Plan(
        recipe=recipe,
        job=Job(**job),
        directory=RunDirectory(path),
        dataset=open_dataset(recipe.data, recipe.seed),
        num_steps=3,
        last_step=3,
        num_evaluation_leaves=1,
        checkpoint=None,
        best=None,
        programs={},
    )
    return Supervisor(plan, Silent())


@pytest.mark.parametrize(("listen", "here"), [("127.0.0.1", 3), (None, None)])
def test_a_resize_is_told_to_the_engine_of_a_run_that_hosts_may_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str | None, here: int | None
) -> None:
    """It says how many of them run on this host."""
    events: list[e.Event] = []
    one = supervisor(tmp_path, workers=1, listen=listen)
    monkeypatch.setattr(one, "_handle", events.append)
    assert one.on_command({"type": "resize", "workers": 3}) == {"type": "ok"}
    assert one.on_command({"type": "resize", "workers": 5})["type"] == "refused"
    assert events == [e.Resize(3, here)]


def test_no_checkpoint_is_promised_where_a_signal_ends_the_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there yet who could write one."""
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda _, text: notes.append(text))
    one = supervisor(tmp_path, workers=1)
    one._is_open = True
    one.on_signal(signal.SIGINT)
    assert one._outcome == e.Outcome("stopped", None, "SIGINT")
    assert notes == []
