"""The cache: complete or not there, shared by all processes of a host, and safe when one is killed half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.config import Data
from lockstep.data import cache, open_dataset
from lockstep.errors import UserError
from tests.conftest import REPOSITORY
from tests.data import files


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lockstep"


def archive(directory: Path, count: int = 30) -> Path:
    folder, contents = files.version("cifar10", "binary", files.cifar10(count), files.cifar10(10))
    return files.write_tar(directory / "cifar-10-binary.tar.gz", folder, contents)


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# Reads every record, then tells which files are mapped and how much memory is its own, and stays until told to end. Its
# own is what no file stands behind: of a mapped file, Linux counts as private every page that no other process has
# touched yet, so that whoever comes first would seem to have a copy.
READER = """
import os, re, sys
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.source import in_order

def own():
    return int(re.search(r"Anonymous: +([0-9]+)", open("/proc/self/smaps_rollup").read())[1]) >> 10

open_dataset(Data(source="synthetic"), 0).train.fetch(in_order(0, 500))
before = own()
dataset = open_dataset(Data(path=sys.argv[1], crop_padding=0, flip=False), 0)
for first in range(0, len(dataset.train), 500):
    dataset.train.fetch(in_order(first, first + 500))
mapped = {line.split()[4] for line in open("/proc/self/maps") if line.rstrip().endswith(".bin")}
print(len(dataset.train), own() - before, *sorted(mapped), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_share_one_copy(tmp_path: Path, home: Path) -> None:
    """Two processes that come at once map the same files, and the data are no memory of their own."""
    folder, contents = files.version("cifar10", "binary", files.cifar10(8000), files.cifar10(10))
    path = files.write_tar(tmp_path / "cifar.tar", folder, contents, "w")
    readers = [start(READER, str(path)) for _ in range(2)]
    found = [reader.stdout.readline().split() for reader in readers if reader.stdout]
    for reader in readers:
        reader.communicate()
    assert found[0][0] == "8000"
    assert found[0][2:] == found[1][2:]
    assert len(found[0][2:]) == 6  # five training files and the test file
    assert all(int(mebibytes) < 12 for _, mebibytes, *_ in found), found  # of 25 MB


CONVERTER = """
import sys
from pathlib import Path
from lockstep.data import cache

def write(directory):
    (directory / "a.bin").write_bytes(b"x" * 1000)
    print("half", flush=True)
    sys.stdin.read()

cache.entry("thing", write)
"""


def test_a_process_that_is_killed_half_way_leaves_nothing_that_counts(home: Path) -> None:
    process = start(CONVERTER)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    assert not (home / "thing").exists()
    assert len(list(home.glob("thing.partial-*"))) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    found = cache.entry("thing", lambda directory: (directory / "b.bin").touch())
    assert sorted(path.name for path in found.iterdir()) == ["b.bin", cache.CONTENTS]
    assert not list(home.glob("thing.partial-*"))


def test_a_failure_leaves_nothing(home: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "a.bin").write_bytes(b"x")
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        cache.entry("thing", write)
    assert [path.name for path in home.iterdir()] == ["thing.lock"]


def test_a_changed_file_and_a_spoilt_copy_are_converted_anew(tmp_path: Path, home: Path) -> None:
    path = archive(tmp_path)
    data = Data(path=str(path))
    assert len(open_dataset(data, 0).train) == 30
    (entry,) = home.glob("data-*[0-9a-f]")
    (entry / "data_batch_1.bin").write_bytes(b"")
    assert len(open_dataset(data, 0).train) == 30
    archive(tmp_path, 40)
    assert len(open_dataset(data, 0).train) == 40
    assert len(list(home.glob("data-*.lock"))) == 2


def test_nothing_is_converted_twice(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path)
    first = open_dataset(Data(path=str(path)), 0)
    monkeypatch.setattr(cache, "_make", None)
    assert len(open_dataset(Data(path=str(path)), 0).train) == len(first.train)


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write to the cache .*XDG_CACHE_HOME"):
        open_dataset(Data(path=str(archive(tmp_path))), 0)


@pytest.mark.parametrize("form", ["binary", "python"])
def test_a_full_disk_is_one_sentence(small_disk: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """A real file system of 64 KiB."""
    folder, contents = files.version("cifar10", form, files.cifar10(100), files.cifar10(10))
    path = files.write_tar(small_disk.parent / "some.tar.gz", folder, contents)
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    with pytest.raises(UserError, match=r"cannot write to the cache .*No space left"):
        open_dataset(Data(path=str(path)), 0)
    assert [found.name[-5:] for found in (small_disk / "lockstep").iterdir()] == [".lock"]
