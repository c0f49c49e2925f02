"""What the supervisor writes down."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lockstep import metrics
from lockstep.config import Job
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
