"""Checkpoints for workers that cannot see the run directory: sent to them, and received from them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from lockstep import checkpoint, wire
from lockstep.checkpoint import Damaged
from lockstep.errors import UserError
from lockstep.wire import Message

PIECE = 1 << 20


async def send(path: Path | None, writer: asyncio.StreamWriter) -> None:
    """Every file of a checkpoint; only a closed connection if it is not there any more."""
    if path is None:
        return
    try:
        names = checkpoint.files_of(path)
    except Damaged:
        return
    for name in names:
        try:
            file = (path / name).open("rb")
        except FileNotFoundError:
            return
        with file:
            size = (path / name).stat().st_size
            writer.write(wire.encode({"type": "file", "name": name, "bytes": size}))
            while piece := file.read(PIECE):
                writer.write(piece)
                await writer.drain()
    writer.write(wire.encode({"type": "end"}))
    await writer.drain()


async def receive(root: Path, worker: int, reader: asyncio.StreamReader) -> Message:
    """A checkpoint from a worker, put in its place when its checksums are right; what to answer."""
    temporary = root / f".step-incoming.{worker}"
    try:
        await asyncio.to_thread(shutil.rmtree, temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        while (frame := await wire.read_frame(reader))["type"] == "file":
            if frame["name"] not in checkpoint.ALL_FILES:
                raise wire.BadFrame(f"{frame['name']!r} is no file of a checkpoint")
            await _receive_file(reader, temporary / frame["name"], int(frame["bytes"]))
        info = await asyncio.to_thread(_place, root, temporary)
    except (OSError, Damaged, UserError) as error:
        return {"type": "checkpoint_failed", "error": f"{type(error).__name__}: {error}"}
    finally:
        await asyncio.to_thread(shutil.rmtree, temporary, ignore_errors=True)
    return {"type": "checkpointed", "name": info.path.name, "digest": info.digest}


async def _receive_file(reader: asyncio.StreamReader, path: Path, count: int) -> None:
    with path.open("wb") as file:
        while count > 0:
            piece = await reader.read(min(PIECE, count))
            if not piece:
                raise ConnectionError("the stream ended inside a file")
            file.write(piece)
            count -= len(piece)


def _place(root: Path, temporary: Path) -> checkpoint.Info:
    info = checkpoint.verify(temporary)
    return checkpoint.place(temporary, root / checkpoint.directory_name(info.step))
