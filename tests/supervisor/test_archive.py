"""What the supervisor writes down."""

from __future__ import annotations

import asyncio
import os
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
    """Of workers on other hosts, which have to join again, it knows nothing."""
    directory = RunDirectory(tmp_path)
    directory.checkpoints.mkdir()
    directory.write_config(demo(), Job(workers=2, tensorboard=False))
    archive = Archive(directory, Silent(), first_step=0, keep=2, verified=None)

    async def session() -> None:
        async with archive.opened(demo(), Job(workers=2, tensorboard=False)):
            for row, stored in (({"workers": 3}, 3), ({"workers": 4, "here": 1}, 1)):
                archive.record({"kind": "resize", **row, "step": 5}, None)
                assert directory.read_config()[1].workers == stored

    asyncio.run(session())


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


def fill_disk_of(archive: Archive) -> None:
    """From now on no row can be written."""
    assert archive._metrics is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, archive._metrics._file.fileno())
    os.close(full)


def test_a_disk_that_is_full_to_the_end_costs_rows_and_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loggers have every row, and are told of the end."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "supervisor.json").mkdir()  # which cannot be removed like a file
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda _, text: notes.append(text))
    archive = Archive(RunDirectory(tmp_path), Silent(), first_step=0, keep=2, verified=None)

    async def session() -> None:
        async with archive.opened(demo(), Job(workers=1, tensorboard=False, loggers=("csv",))):
            archive.record({"kind": "train", "step": 1, "loss": 2.5}, None)
            fill_disk_of(archive)
            archive.record({"kind": "end", "state": "finished", "digest": "abc", "step": 1}, None)
            archive.withdraw()

    asyncio.run(session())
    assert [row["kind"] for row in metrics.read(tmp_path / "metrics.jsonl")] == ["start", "train"]
    assert "2.5" in (tmp_path / "metrics.csv").read_text()
    assert [note.partition(" cannot")[0] for note in notes] == ["warning: metrics.jsonl"]
