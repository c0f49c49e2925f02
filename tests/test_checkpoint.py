"""The files of a checkpoint: complete or not there, and every damage is found."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep import checkpoint
from lockstep.checkpoint import Damaged, Snapshot
from lockstep.config import Checkpoints
from lockstep.errors import UserError
from lockstep.line import Line
from lockstep.membership import Membership
from lockstep.state import State
from lockstep.writer import Writer


def snapshot(step: int) -> Snapshot:
    model = {"b": torch.arange(6.0).view(2, 3), "a": torch.tensor(step)}
    state = State(model, {"b/momentum_buffer": torch.ones(2, 3)}, tally=[[0.5, 2.0, 3.0]])
    return Snapshot(step, state, best={"top1": 0.5, "step": 1}, evaluated=1)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    info = checkpoint.write(tmp_path, snapshot(7))
    assert checkpoint.verify(info.path) == info
    assert (info.step, info.best, info.evaluated) == (7, {"top1": 0.5, "step": 1}, 1)
    assert checkpoint.digest_of_files(info) == info.digest == snapshot(7).digest()
    state = checkpoint.load(info.path, snapshot(7).state.model)
    assert torch.equal(state.model["b"], snapshot(7).state.model["b"])
    assert torch.equal(state.optimizer["b/momentum_buffer"], torch.ones(2, 3))
    assert state.tally == [[0.5, 2.0, 3.0]]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000007"]


def test_a_figure_that_is_no_number_is_one_that_any_reader_of_json_takes(tmp_path: Path) -> None:
    """A run that has diverged goes on being one; so do those whose checkpoints have the NaN of Python's own JSON."""
    diverged = snapshot(7)
    diverged.state.tally[:] = [[math.nan, 2.0, 3.0], [math.inf, 1.0, 1.0]]
    diverged.rows.append({"step": 6, "loss": math.nan, "lr": 0.1})
    info = checkpoint.write(tmp_path, diverged)
    file = info.path / "checkpoint.json"
    assert not re.search("NaN|Infinity", file.read_text())
    older = file.read_text().replace("null", "NaN")
    assert older.count("NaN") == 3
    for text in (file.read_text(), older):
        file.write_text(text)
        (lost, *hits), (grown, *_) = checkpoint.load(info.path, diverged.state.model).tally
        assert (math.isnan(lost), math.isfinite(grown), hits) == (True, False, [2.0, 3.0])
        (row,) = checkpoint.carried_rows(tmp_path, 0, 7)
        assert (math.isnan(row["loss"]), row["lr"]) == (True, 0.1)


def test_the_digest_sees_names_shapes_types_and_bytes() -> None:
    def digest(tensors: dict[str, torch.Tensor]) -> str:
        return Snapshot(0, State(tensors, {}), None, -1).digest()

    base = {"x": torch.zeros(2, 3), "y": torch.ones(1)}
    variants = [
        {"y": torch.ones(1), "x": torch.zeros(2, 3)},  # another order of insertion: the same digest
        {"z": torch.zeros(2, 3), "y": torch.ones(1)},
        {"x": torch.zeros(3, 2), "y": torch.ones(1)},
        {"x": torch.zeros(2, 3, dtype=torch.int32), "y": torch.ones(1)},
        {"x": torch.full((2, 3), -0.0), "y": torch.ones(1)},
    ]
    digests = [digest(variant) for variant in variants]
    assert digests[0] == digest(base)
    assert digest(base) not in digests[1:]
    assert len(set(digests)) == 5
    channels_last = torch.arange(16.0).view(1, 4, 2, 2)
    assert digest({"x": channels_last.contiguous(memory_format=torch.channels_last)}) == digest({"x": channels_last})


def test_the_state_digest_also_sees_optimizer_and_step() -> None:
    base = snapshot(7)
    assert base.state_digest() != Snapshot(8, base.state, None, -1).state_digest()
    assert base.state_digest() != Snapshot(7, State(base.state.model, {}), None, -1).state_digest()
    assert base.state_digest() == Snapshot(7, base.state, None, 5).state_digest()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_every_damage_is_found_and_the_older_one_used(tmp_path: Path, name: str, damage: str) -> None:
    checkpoint.write(tmp_path, snapshot(1))
    victim = checkpoint.write(tmp_path, snapshot(2)).path / name
    data = bytearray(victim.read_bytes())
    if damage == "flipped":
        data[2] ^= 0x80  # in JSON no valid text any more
    victim.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
    if damage == "missing":
        victim.unlink()
    newest, problems = checkpoint.newest_good(tmp_path)
    assert newest is not None
    assert newest.step == 1
    assert len(problems) == 1
    assert name in problems[0]


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.write(tmp_path, snapshot(1))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fsync" else Path, call, full)
        if call == "mkdir":
            patch.setattr(Path, "mkdir", lambda self, **kw: None if kw.get("exist_ok") else full())
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write(tmp_path, snapshot(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    assert checkpoint.write(tmp_path, snapshot(2)).step == 2


def kill_at(boundary: int) -> None:
    """From now on this process dies before or after the so-manieth thing that it does to a file."""
    import safetensors.torch

    left = iter(range(boundary + 1))

    def pass_boundary() -> None:
        if next(left, None) == boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            pass_boundary()
            result = whole(*arguments, **keywords)
            pass_boundary()
            return result

        setattr(owner, name, wrapped)

    for owner, name in ((os, "fsync"), (Path, "mkdir"), (Path, "rename"), (Path, "write_text"), (shutil, "rmtree")):
        wrap(owner, name)
    wrap(safetensors.torch, "save_file")


def test_a_write_killed_at_any_boundary_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    """F75: `kill -9` before and after everything that the writer does to a file."""
    found, boundary, status = [], 0, -1
    while status != 0:
        root = tmp_path / str(boundary)
        checkpoint.write(root, snapshot(1))
        pid = os.fork()
        if pid == 0:
            kill_at(boundary)
            checkpoint.write(root, snapshot(2))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        newest, problems = checkpoint.newest_good(root)
        assert problems == []
        assert newest is not None
        found.append(newest.step)
        checkpoint.remove_leftovers(root)
        assert {path.name for path in root.iterdir()} <= {"step-000000001", "step-000000002"}
        assert checkpoint.write(root, snapshot(2)).step == 2
        boundary += 1
    assert boundary > 20
    assert found == sorted(found)
    assert set(found) == {1, 2}


def test_a_redone_step_replaces_only_a_damaged_or_a_wrong_checkpoint(tmp_path: Path) -> None:
    """F75: what is whole is written once."""
    first = checkpoint.write(tmp_path, snapshot(1))
    before = (first.path / "model.safetensors").stat().st_ino
    checkpoint.write(tmp_path, snapshot(1))
    assert (first.path / "model.safetensors").stat().st_ino == before
    (first.path / "model.safetensors").write_bytes(b"broken")
    assert checkpoint.verify(checkpoint.write(tmp_path, snapshot(1)).path) == first
    right = snapshot(1)
    right.state.optimizer["b/momentum_buffer"][0, 0] = 2.0
    assert checkpoint.write(tmp_path, right).state_digest == right.state_digest() != first.state_digest


def test_leftovers_of_a_killed_writer_are_no_checkpoints(tmp_path: Path) -> None:
    good = checkpoint.write(tmp_path, snapshot(1))
    shutil.copytree(good.path, tmp_path / ".step-000000009.4711")
    shutil.copytree(good.path, tmp_path / ".step-incoming.3")  # from a worker that cannot see the directory
    newest, problems = checkpoint.newest_good(tmp_path)
    assert newest == good
    assert problems == []
    checkpoint.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_another_model_and_another_version_are_refused(tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path, snapshot(1)).path
    with pytest.raises(UserError, match="only the model has 'c'"):
        checkpoint.load(path, {**snapshot(1).state.model, "c": torch.ones(1)})
    with pytest.raises(UserError, match="only the checkpoint has 'b'"):
        checkpoint.load(path, {"a": torch.tensor(1)})
    document = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**document, "version": 99}))
    with pytest.raises(UserError, match="format version 99"):
        checkpoint.verify(path)
    (path / "checkpoint.json").write_text(json.dumps({"version": 1}))
    with pytest.raises(Damaged, match="lacks 'step'"):
        checkpoint.read_info(path)


def test_the_newest_and_the_best_are_kept() -> None:
    entries = [{"step": step} for step in (10, 20, 30, 40)]
    assert [entry["step"] for entry in checkpoint.to_keep(entries, 2, set())] == [30, 40]
    assert [entry["step"] for entry in checkpoint.to_keep(entries, 2, {10})] == [10, 30, 40]
    assert [entry["step"] for entry in checkpoint.to_keep(entries, 1, {40})] == [40]


def test_checkpoints_are_due_by_steps_and_at_the_ends_of_epochs() -> None:
    """F75."""

    def due(config: Checkpoints) -> list[int]:
        return [done for done in range(1, 21) if checkpoint.is_due(config, done, steps_per_epoch=7.5)]

    assert due(Checkpoints(every_steps=6)) == [6, 12, 18]
    assert due(Checkpoints(every_epochs=1)) == [8, 15]
    assert due(Checkpoints(every_epochs=0.5)) == [4, 8, 12, 15, 19]
    assert due(Checkpoints()) == []


def test_writing_does_not_hold_up_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is waited for at the end only, and what came of it is reported in order."""
    membership = Membership(0, None)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(membership, "send", said.append)
    whole = checkpoint.write

    def slowly(root: Path, one: Snapshot, owner: str) -> checkpoint.Info:
        time.sleep(0.3)
        return whole(root, one, owner)

    monkeypatch.setattr(checkpoint, "write", slowly)
    writer = Writer(tmp_path, Line("", "", 0), membership)
    start = time.monotonic()
    writer.save(snapshot(1), "time", 3)
    writer.save(snapshot(2), None, 3)
    writer.save(snapshot(3), None, 3)  # takes the place of the one before it, which still waits
    assert time.monotonic() - start < 0.2
    writer.finish()
    assert time.monotonic() - start > 0.6
    assert [(message["type"], message["step"], message["reason"], message["number"]) for message in said] == [
        ("checkpointed", 1, "time", 3),
        ("checkpointed", 3, None, 3),
    ]
    writer.save(snapshot(4), "time", 3)
    writer.save(snapshot(5), "time", 3)
    writer.forget()
    writer.finish()
    assert len(said) <= 3
    assert not (tmp_path / "step-000000005").exists()
