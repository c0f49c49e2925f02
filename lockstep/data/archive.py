"""CIFAR's archives (.tar.gz, or a plain .tar): the members that are known by name, one after the other.

No path in an archive is ever used to write: members are known by their base name and nothing else. What comes out is
bounded, so that a few kilobytes cannot fill a disk.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from lockstep.errors import UserError

MAX_BYTES = 1 << 30
"""Unpacked, all members together; the largest official archive has a fifth of this."""

CHUNK = 1 << 20


class _Bounded(io.RawIOBase):
    """A stream that ends with a sentence where it is damaged, cut off or endless."""

    def __init__(self, stream: gzip.GzipFile | IO[bytes], name: str) -> None:
        self._stream, self._name, self._read = stream, name, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._stream.read(CHUNK if size < 0 else size)
        except EOFError:
            raise UserError(f"{self._name} is cut off: its download did not finish; download it again") from None
        except (OSError, zlib.error) as error:
            raise UserError(f"{self._name} is damaged ({error}): download it again") from None
        self._read += len(data)
        if self._read > MAX_BYTES:
            raise UserError(
                f"{self._name} unpacks to more than {MAX_BYTES >> 20} MiB, which no CIFAR archive does: unpack it "
                "yourself, if you trust it, and give the directory"
            )
        return data


def is_archive(start: bytes) -> bool:
    """From the first 512 bytes of a file."""
    return start.startswith(b"\x1f\x8b") or start[257:262] == b"ustar"


def unpack(path: Path, is_known: Callable[[str], bool], take: Callable[[str, IO[bytes]], None]) -> None:
    """Hand over base name and contents of every known member, and check all of the stream."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = _Bounded(gzip.GzipFile(fileobj=file) if is_packed else file, str(path))
        try:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as tar:
                for name, contents in _known_members(tar, is_known, str(path)):
                    take(name, contents)
        except (tarfile.TarError, ValueError, OverflowError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is no tar archive, or is damaged ({error}): download it again") from None
        while stream.read():  # the checksum stands at the very end
            pass


def _known_members(tar: tarfile.TarFile, is_known: Callable[[str], bool], path: str) -> Iterator[tuple[str, IO[bytes]]]:
    seen: set[str] = set()
    for member in tar:
        name = PurePosixPath(member.name).name
        contents = tar.extractfile(member) if member.isreg() and is_known(name) else None
        if contents is None:
            continue
        if name in seen:
            raise UserError(f"{path} holds {name} twice: unpack it, and give the directory that you mean with --data")
        seen.add(name)
        yield name, contents
