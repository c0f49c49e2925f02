"""What the supervisor writes down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lockstep import checkpoint, metrics
from lockstep.checkpoint import Info
from lockstep.config import Job
from lockstep.errors import UserError
from lockstep.progress import Silent
from lockstep.recipes.demo import demo
from lockstep.rundirectory import RunDirectory
from lockstep.supervisor.archive import Archive
from lockstep.supervisor.events import KeepCheckpoint


def test_a_checkpoint_that_is_written_for_two_reasons_has_one_row(tmp_path: Path) -> None:
    """The best one was asked for while the planned one of the same step was on its way."""
    (tmp_path / "checkpoints").mkdir()
    archive = Archive(RunDirectory(tmp_path), Silent(), first_step=0, keep=2, verified=None)

    async def session() -> None:
        async with archive.opened(demo(), Job(workers=1, tensorboard=False)):
            for step in (4, 4, 8):
                archive.keep(KeepCheckpoint(step, f"step-{step}", f"digest {step}"), set(), set())

    asyncio.run(session())
    rows = metrics.read(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "checkpoint"] == [4, 8]


def test_a_resize_is_written_to_the_configuration(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.checkpoints.mkdir()
    directory.write_config(demo(), Job(workers=2, tensorboard=False))
    archive = Archive(directory, Silent(), first_step=0, keep=2, verified=None)

    async def session() -> None:
        async with archive.opened(demo(), Job(workers=2, tensorboard=False)):
            archive.record({"kind": "resize", "workers": 3, "step": 5}, None)

    asyncio.run(session())
    assert directory.read_config()[1].workers == 3


def test_a_late_checkpoint_is_taken_once_and_never_where_states_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path)
    late = Info(directory.checkpoints / "step-000000007", 7, "seven", "", None, -1, [])
    monkeypatch.setattr(checkpoint, "newest_good", lambda _: (late, []))

    async def session(verified: int | None, first_step: int) -> list[str | None]:
        archive = Archive(directory, Silent(), first_step, keep=2, verified=verified)
        async with archive.opened(demo(), Job(workers=1, tensorboard=False)):
            return [archive.take_late(set()), archive.take_late(set())]

    directory.checkpoints.mkdir()
    assert asyncio.run(session(verified=0, first_step=0)) == [None, None]
    assert asyncio.run(session(verified=None, first_step=7)) == [None, None], "it is what the session began with"
    assert asyncio.run(session(verified=None, first_step=0)) == ["seven", None]
    assert [row["digest"] for row in metrics.read(directory.metrics) if row["kind"] == "checkpoint"] == ["seven"]


def test_metrics_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "nowhere" / "metrics.jsonl")
    archive = Archive(RunDirectory(tmp_path), Silent(), first_step=0, keep=2, verified=None)

    async def session() -> None:
        async with archive.opened(demo(), Job(workers=1, tensorboard=False)):
            pass

    with pytest.raises(UserError, match=r"cannot write to .* \(No such file or directory\)"):
        asyncio.run(session())
