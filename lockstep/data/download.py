"""Getting CIFAR's official archives: a download that goes on where it stopped, is checked, and is laid out.

The bytes go to `<archive>.part`; only what has the right checksum is unpacked, and only a complete folder appears under
its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import itertools
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from lockstep.data import archive
from lockstep.errors import UserError

SITE = "https://www.cs.toronto.edu/~kriz/"
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
"""In a row without a byte; one that brings some starts the count anew."""
BACK_OFF_SECONDS = 0.5
"""Before the second attempt; twice as long before each further one."""
CHUNK = 1 << 18

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there, and all of them where the server says so."""


@dataclass(frozen=True)
class Archive:
    name: str
    md5: str
    folder: str
    files: tuple[str, ...]
    """What must be in it."""
    sizes: dict[str, int] = field(default_factory=dict)
    """In bytes, of those with the samples, as far as we know it for sure; training finds others that were cut off."""


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_BINARY = dict.fromkeys([*(f"{name}.bin" for name in _BATCHES), "test_batch.bin"], 10_000 * 3073)
_PICKLED = (31_035_704, 31_035_320, 31_035_999, 31_035_696, 31_035_623)
ARCHIVES = {
    ("cifar10", "binary"): Archive(
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-batches-bin",
        (*(f"{name}.bin" for name in _BATCHES), "test_batch.bin", "batches.meta.txt"),
        _BINARY,
    ),
    ("cifar100", "binary"): Archive(
        "cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-binary",
        ("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"),
        {"train.bin": 50_000 * 3074, "test.bin": 10_000 * 3074},
    ),
    ("cifar10", "python"): Archive(
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
        (*_BATCHES, "test_batch", "batches.meta"),
        {**dict(zip(_BATCHES, _PICKLED, strict=True)), "test_batch": 31_035_526},
    ),
    ("cifar100", "python"): Archive(
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-python",
        ("train", "test", "meta"),
        {"train": 155_249_918},
    ),
}


class _Again(Exception):  # noqa: N818
    """An attempt that may go better the next time."""


def get(wanted: Archive, directory: Path, url: str | None, progress: Progress) -> Path:
    """The folder with a data set below a directory, downloaded and unpacked if it is not there yet."""
    folder = directory / wanted.folder
    if is_complete(folder, wanted):
        return folder
    try:
        directory.mkdir(parents=True, exist_ok=True)
        packed = directory / wanted.name
        if packed.is_file() and _md5(packed) == wanted.md5:
            _lay_out(packed, folder, wanted)
        else:
            part = directory / f"{wanted.name}.part"
            with _locked(part):
                _download(wanted, part, url, progress)
                _lay_out(part, folder, wanted)
                part.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {error.filename or directory} ({error.strerror or error}): make room there, or give "
            "another directory"
        ) from None
    return folder


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[None]:
    """Two processes that append to one file would spoil it for both."""
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is writing {part}: wait for it, or give another directory") from None
        yield


def is_complete(folder: Path, wanted: Archive) -> bool:
    """Folders appear complete; a file that was deleted or cut off since makes them incomplete."""
    return _holds_all(folder, wanted) and other_file(folder, wanted) is None


def other_file(folder: Path, wanted: Archive) -> Path | None:
    """A file that has the name of an official one and not its size: cut off, or of somebody's own."""
    names = (name for name, size in wanted.sizes.items() if _size(folder / name) not in (0, size))
    return next((folder / name for name in names), None)


def aside(folder: Path) -> Path:
    """Where a folder goes that is downloaded again although it holds something."""
    numbers = itertools.count(1)
    return next(path for n in numbers if not (path := folder.with_name(f"{folder.name}.old-{n}")).exists())


def _holds_all(folder: Path, wanted: Archive) -> bool:
    return all(_size(folder / name) for name in wanted.files)


def _lay_out(packed: Path, folder: Path, wanted: Archive) -> None:
    """Write the known members under their own names, and give the folder its name when all are there."""
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()

    def take(name: str, contents: IO[bytes]) -> None:
        with (temporary / name).open("xb") as target:
            shutil.copyfileobj(contents, target, archive.CHUNK)

    try:
        archive.unpack(packed, wanted.files.__contains__, take)
        if not _holds_all(temporary, wanted):  # its checksum has been looked at
            raise UserError(f"{packed} does not hold all of {', '.join(wanted.files)}: delete it and try again")
        if other_file(folder, wanted) is not None:
            folder.rename(aside(folder))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _download(wanted: Archive, part: Path, url: str | None, progress: Progress) -> None:
    """Go on until the archive is whole, and has its checksum."""
    address = url or SITE + wanted.name
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise UserError(f"--url takes an address that begins with http:// or https://, not {address}")
    failures = 0
    while True:
        before = _size(part)
        try:
            _attempt(address, part, progress)
            break
        except _Again as problem:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= ATTEMPTS:
                raise UserError(
                    f"cannot download {address} ({problem}): look at the network and try again, what is there is kept"
                ) from None
            time.sleep(BACK_OFF_SECONDS * 2 ** (failures - 1))
    found = _md5(part)
    if found != wanted.md5:
        part.unlink()
        raise UserError(
            f"{address} is not {wanted.name}: its MD5 sum is {found}, not {wanted.md5}; it was deleted, try again or "
            "give another place with --url"
        )


def _attempt(address: str, part: Path, progress: Progress) -> None:
    """One request for what is missing, until nothing is."""
    have = _size(part)
    headers = {"User-Agent": "lockstep", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=TIMEOUT_SECONDS
        ) as answer:
            if have and (answer.status != 206 or not _starts_at(answer, have)):
                have = 0  # this server sends all of it again
            length = answer.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else None
            _append(answer, part, have, total, progress)
    except urllib.error.HTTPError as error:
        _on_status(error, part, address)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _Again(getattr(error, "reason", None) or error) from None


def _starts_at(answer: Any, have: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-")


def _on_status(error: urllib.error.HTTPError, part: Path, address: str) -> None:
    if error.code == 416:  # there is nothing after what we have
        if error.headers.get("Content-Range", "") == f"bytes */{_size(part)}":
            return
        part.write_bytes(b"")
        raise _Again("what was there did not fit")
    if error.code in (408, 429) or error.code >= 500:
        raise _Again(f"the server says {error.code} {error.reason}")
    raise UserError(
        f"cannot download {address}: the server says {error.code} {error.reason}; give another place with --url"
    )


def _append(answer: IO[bytes], part: Path, have: int, total: int | None, progress: Progress) -> None:
    if max(have, total or 0) > archive.MAX_BYTES:
        raise UserError(
            f"the server offers {total} bytes, far more than the archive has: give another place with --url"
        )
    with part.open("r+b") as file:
        file.seek(have)
        file.truncate()
        progress(have, total)
        while data := answer.read(CHUNK):
            file.write(data)
            have += len(data)
            if have > (total or archive.MAX_BYTES):
                raise UserError("the server sends more bytes than it said: give another place with --url")
            progress(have, total)
    if total is not None and have < total:
        raise _Again(f"the connection ended after {have} of {total} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
