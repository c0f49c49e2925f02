"""Archives: damaged, cut off, endless and hostile ones."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from lockstep.config import Data
from lockstep.data import archive, open_dataset
from lockstep.data.source import Dataset
from lockstep.errors import UserError
from tests.data import files


def official(path: Path) -> Path:
    folder, contents = files.version("cifar10", "binary", files.cifar10(30), files.cifar10(10))
    return files.write_tar(path / "cifar-10-binary.tar.gz", folder, contents)


def opened(path: Path) -> Dataset:
    return open_dataset(Data(path=str(path)), seed=0)


def test_half_a_download_is_recognised(tmp_path: Path) -> None:
    """F6: whatever came through, also when only the last bytes are missing."""
    path = official(tmp_path)
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 1, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"binary\.tar\.gz is cut off: its download did not finish"):
            opened(path)


@pytest.mark.parametrize("place", ["in the data", "behind the last member"])
def test_a_flipped_bit_is_found_by_the_checksum(tmp_path: Path, place: str) -> None:
    """F6: the stream is read to its very end."""
    path = tmp_path / "cifar-10-binary.tar.gz"
    folder, contents = files.version("cifar10", "binary", files.cifar10(30), files.cifar10(10))
    inner = files.write_tar(tmp_path / "x.tar", folder, contents, "w").read_bytes()
    padding = bytes(3 * archive.CHUNK)
    packed = bytearray(gzip.compress(inner + padding, compresslevel=0))  # stored as it is: only the checksum can tell
    packed[len(inner) // 2 if place == "in the data" else -1000] ^= 1
    path.write_bytes(packed)
    with pytest.raises(UserError, match=r"is damaged .*CRC"):
        opened(path)


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    """F6."""
    path = files.write_tar(tmp_path / "photos.tar.gz", "photos", {"cat.jpg": b"x" * 100})
    with pytest.raises(UserError, match=r"photos\.tar\.gz holds no files of CIFAR-10 or CIFAR-100"):
        opened(path)
    path.write_bytes(gzip.compress(b"no tar at all" * 100))
    with pytest.raises(UserError, match="is no tar archive"):
        opened(path)
    for start, sentence in ((b"<html>404</html>", "web page"), (b"", "is empty"), (b"PK\x03\x04" * 9, "is no .tar.gz")):
        path.write_bytes(start)
        with pytest.raises(UserError, match=sentence):
            opened(path)


def test_the_archive_of_the_other_data_set(tmp_path: Path) -> None:
    """F6."""
    with pytest.raises(UserError, match=r"tar\.gz holds CIFAR-10, but CIFAR-100 is wanted"):
        open_dataset(Data(source="cifar100", path=str(official(tmp_path))), seed=0)


def test_errors_in_a_member_name_archive_member_and_record(tmp_path: Path) -> None:
    """F6: though it is read from the cache."""
    train = files.cifar10(30)
    train[7, 0] = 77
    path = files.write_tar(tmp_path / "a.tar.gz", *files.version("cifar10", "binary", train, train[:5]))
    with pytest.raises(UserError, match=r"a\.tar\.gz, data_batch_2\.bin, record 1: label 77"):
        opened(path)
    contents = {"data_batch_1": files.pickle10(train), "test_batch": files.pickle10(train)}
    path = files.write_tar(tmp_path / "b.tar.gz", "", contents)
    with pytest.raises(UserError, match=r"b\.tar\.gz, data_batch_1, record 7: label 77"):
        opened(path)


def test_nothing_is_written_where_an_archive_says(tmp_path: Path) -> None:
    """Paths out of the directory, links and devices: only base names of plain files count."""
    path, outside = tmp_path / "evil.tar.gz", tmp_path / "outside"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("../" * 20 + str(outside)[1:], str(outside), "../data_batch_1.bin"):
            member = tarfile.TarInfo(name)
            member.size = 3073
            tar.addfile(member, io.BytesIO(bytes(3073)))
        link = tarfile.TarInfo("test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match=r"holds no test_batch\.bin"):
        opened(path)
    assert not outside.exists()


def test_a_name_that_comes_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for folder in ("a", "b"):
            member = tarfile.TarInfo(f"{folder}/test_batch.bin")
            tar.addfile(member)
    with pytest.raises(UserError, match=r"holds test_batch\.bin twice"):
        opened(path)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "junk"])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A few kilobytes that unpack to many megabytes, in a member that is wanted or in one that is not."""
    monkeypatch.setattr(archive, "MAX_BYTES", 4 << 20)
    path = files.write_tar(tmp_path / "bomb.tar.gz", "", {name: bytes(16 << 20)})
    assert path.stat().st_size < 1 << 16
    with pytest.raises(UserError, match="unpacks to more than 4 MiB"):
        opened(path)
