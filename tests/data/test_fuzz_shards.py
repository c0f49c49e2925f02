"""Random damage to shards, label files and the index: a sentence or a valid index, never anything else."""

from __future__ import annotations

import random
import resource
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lockstep.data import indexfile
from lockstep.data.index import Index
from lockstep.data.layouts import labels
from lockstep.errors import UserError
from tests.data.shards import contents, example, noise, opened, write_synsets, write_tar, write_tfrecords
from tests.data.test_fuzz import damage

SECONDS = 1.5
MOST_MEMORY = 300 << 10
"""KiB that the peak of this process may rise by; a damaged length must not be believed."""


def originals(directory: Path) -> dict[str, bytes]:
    """A small shard of every layout."""
    long = {"a/" * 80 + f"{number}.JPEG": noise(300 * number) for number in range(1, 5)}
    beside = {"0.jpg": noise(100), "0.cls": b"3", "1.json": b'{"label": 4}', "1.png": noise(600)}
    inside = {path.name: path.read_bytes() for path in sorted(write_synsets(directory / "inside", 3).iterdir())}
    records = [example(noise(400, number), number + 1, f"{number}.JPEG") for number in range(4)]
    made = {
        "gnu": write_tar(directory / "gnu", long, tarfile.GNU_FORMAT),
        "pax": write_tar(directory / "pax", long, tarfile.PAX_FORMAT),
        "webdataset": write_tar(directory / "webdataset", beside),
        "nested": write_tar(directory / "nested", inside),
        "tfrecord": write_tfrecords(directory / "tfrecord", records),
    }
    return {name: path.read_bytes() for name, path in made.items()}


def fuzz(one: Callable[[random.Random, int], bool], name: str) -> None:
    """As much of the same damage as fits into the time; `one` says whether it was refused."""
    chance, before = random.Random(name), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    deadline, refused, tried = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < deadline or tried < 20:
        tried += 1
        refused += one(chance, tried)
    assert refused > 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def one_line(error: UserError) -> bool:
    assert str(error).isprintable()
    return True


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", ["gnu", "pax", "webdataset", "nested", "tfrecord"])
def test_damaged_shards(tmp_path: Path, name: str) -> None:
    """F6, F23"""
    original = originals(tmp_path)[name]
    suffix = "-00000-of-00001" if name == "tfrecord" else ".tar"

    def one(chance: random.Random, number: int) -> bool:
        path = tmp_path / f"n{number:08d}{suffix}"
        path.write_bytes(damage(original, chance))
        try:
            index = opened(path)
            indexfile.check(index)
            assert len(contents(index)) == len(index)
        except UserError as error:
            return one_line(error)
        finally:
            path.unlink()
        return False

    fuzz(one, name)


def test_damaged_records_with_right_checksums(tmp_path: Path) -> None:
    """F6, F23: what protobuf makes of them is not trusted either."""
    original = example(noise(400), 7, "a.JPEG")

    def one(chance: random.Random, number: int) -> bool:
        path = write_tfrecords(tmp_path / f"{number}-00000-of-00001", [damage(original, chance)])
        try:
            indexfile.check(opened(path))
        except UserError:
            return True
        finally:
            path.unlink()
        return False

    fuzz(one, "records")


def test_damaged_label_files() -> None:
    """F19"""
    original = b"".join(b"x/n%08d.JPEG %d\n" % (number, number) for number in range(50))

    def one(chance: random.Random, number: int) -> bool:
        try:
            found = labels.parse(damage(original, chance), "train.txt")
        except UserError as error:
            return one_line(error)
        known = found.of([b"n%08d.JPEG" % number for number in range(50)])
        assert -1 <= known.min() <= known.max() < found.num_classes
        return False

    fuzz(one, "labels")


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    root = write_synsets(tmp_path / "train", 3)
    whole = opened(root)
    columns = {column: np.array(getattr(whole, column)) for column in indexfile.COLUMNS}

    def one(chance: random.Random, number: int) -> bool:
        assert whole.path is not None
        path = chance.choice(sorted(whole.path.iterdir()))
        path.write_bytes(damage(path.read_bytes(), chance))
        index = opened(root)
        assert all((getattr(index, column) == columns[column]).all() for column in columns)
        return True

    fuzz(one, "index")


def test_an_index_with_right_checksums_is_not_trusted(tmp_path: Path) -> None:
    whole = opened(write_synsets(tmp_path / "train", 3))
    assert whole.path is not None
    files = {path.name: path.read_bytes() for path in whole.path.iterdir()}

    def one(chance: random.Random, number: int) -> bool:
        target = tmp_path / f"index-{number}"
        target.mkdir()
        changed = chance.choice([name for name in files if name not in ("sums.json", "contents.json")])
        for name, data in files.items():
            (target / name).write_bytes(damage(data, chance) if name == changed else data)
        indexfile.write_sums(target)
        try:
            index: Index = indexfile.read(target)
            indexfile.check(index)
            assert all(index.name(sample) for sample in range(len(index)))
        except indexfile.Damaged:
            return True
        return False

    fuzz(one, "trusted")
