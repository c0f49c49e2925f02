"""Checks of the places that Lockstep writes to, and of the clock."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import lockstep
from lockstep.data.cache import cache_directory
from lockstep.doctor.finding import GIB, MIB, Finding
from lockstep.rundirectory import ROOT

SAMPLE_BYTES = 16 * MIB
SLOW_BYTES_PER_SECOND = 20 * MIB
LITTLE_BYTES, TOO_LITTLE_BYTES = GIB, 100 * MIB
SKEW_SECONDS = 2.0
"""How far the clock of a file server may be off."""


def runs() -> Finding:
    return place("runs", ROOT, "choose another place with --run, or start in another directory")


def cache() -> Finding:
    return place("cache", cache_directory(), "set XDG_CACHE_HOME to another directory")


def place(name: str, path: Path, elsewhere: str) -> Finding:
    """Free space, and how fast it can be written to; `path` need not exist yet."""
    where = existing_parent(path.absolute())
    free = shutil.disk_usage(where).free
    what = f"{free / GIB:.1f} GiB free in {where}"
    if free < TOO_LITTLE_BYTES:
        return Finding("problem", name, f"{free / MIB:.0f} MiB free in {where}", f"free some space, or {elsewhere}")
    try:
        speed = write_speed(where)
    except OSError as error:
        return Finding("problem", name, f"{where} cannot be written to: {error.strerror}", elsewhere)
    what += f", written at {speed / MIB:.0f} MiB/s"
    if free < LITTLE_BYTES:
        return Finding(
            "warning", name, what, f"checkpoints of larger models need more: free some space, or {elsewhere}"
        )
    if speed < SLOW_BYTES_PER_SECOND:
        return Finding("warning", name, what, f"checkpoints take long: take a faster disk ({elsewhere})")
    return Finding("ok", name, what)


def existing_parent(path: Path) -> Path:
    """The directory itself, or the nearest one above it that is there."""
    return next(one for one in (path, *path.parents) if one.is_dir())


def write_speed(directory: Path) -> float:
    """Bytes per second, synced, as a checkpoint is written."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        start = time.perf_counter()
        piece = os.urandom(MIB)
        for _ in range(SAMPLE_BYTES // MIB):
            file.write(piece)
        os.fsync(file.fileno())
        return SAMPLE_BYTES / (time.perf_counter() - start)


def clock() -> Finding:
    """The time of day, which orders runs and rows: not before Lockstep was installed, and that of the file system."""
    now = time.time()
    what = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < Path(lockstep.__file__).stat().st_mtime:
        return Finding("warning", "clock", f"{what}, before Lockstep was installed", "set the clock, by NTP if you can")
    where = existing_parent(ROOT.absolute())
    skew = file_clock_skew(where)
    if skew is not None and abs(skew) > SKEW_SECONDS:
        advice = "let both follow NTP; until then `last` may mean the wrong run"
        return Finding("warning", "clock", f"{what}; the file system of {where} is {skew:+.0f} s off", advice)
    return Finding("ok", "clock", what)


def file_clock_skew(directory: Path) -> float | None:
    """Seconds by which the file system's clock is ahead of this machine's; None if nothing can be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            before = time.time()
            file.write(b"x")
            file.flush()
            return Path(file.name).stat().st_mtime - before
    except OSError:
        return None
