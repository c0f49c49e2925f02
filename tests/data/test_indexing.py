"""The index is kept, mapped, made again when a shard changes or the file is damaged, and knows training from test."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lockstep.data import indexfile, indexing
from lockstep.data.index import Index
from lockstep.data.listing import Wanted
from lockstep.data.storage import Object, Range
from lockstep.errors import UserError
from tests.data.shards import STORAGE, Elsewhere, contents, members, noise, opened, write_synsets, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_made_once_and_mapped(tmp_path: Path) -> None:
    """The processes of a host share one copy: columns are maps of files."""
    write_synsets(tmp_path / "train", 3)
    away = Elsewhere(tmp_path)
    first = opened("s3://bucket/train", away)
    read = len(away.requests)
    again = opened("s3://bucket/train", away)
    assert read > 0
    assert len(away.requests) == read
    for column in indexfile.COLUMNS:
        assert isinstance(getattr(again, column), np.memmap)
        assert (getattr(again, column) == getattr(first, column)).all()
    assert (again.shards, again.groups, again.path) == (first.shards, first.groups, first.path)


def test_a_changed_shard_is_noticed(tmp_path: Path) -> None:
    """By its time of change or ETag; also where size and name stay."""
    root = write_synsets(tmp_path / "train", 3)
    before = opened(root)
    write_tar(root / "n00000010.tar", {"other.JPEG": noise(100)})
    os.utime(root / "n00000010.tar", ns=(1, 1))
    after = opened(root)
    assert after.path != before.path
    assert after.groups == (3, 1, 3)
    with pytest.raises(UserError, match=r"n00000010\.tar has changed since it was indexed"):
        contents(before)


def test_a_changed_label_file_is_noticed(tmp_path: Path) -> None:
    """F19"""
    write_tar(tmp_path / "some.tar", {"a.JPEG": b"a"})
    labels = tmp_path / "train.txt"
    for label in (3, 4):
        labels.write_text(f"a.JPEG {label}\n")
        os.utime(labels, ns=(label, label))
        assert opened(tmp_path / "some.tar", label_path=str(labels)).label.tolist() == [label]


@pytest.mark.parametrize("name", [*(f"{column}.npy" for column in indexfile.COLUMNS), "index.json", "sums.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_damaged_file_is_made_again(tmp_path: Path, name: str, how: str) -> None:
    root = write_synsets(tmp_path / "train", 2)
    first = opened(root)
    assert first.path is not None
    kept, path, names = contents(first), first.path / name, members(first)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 4]) if how == "flip" else data[: len(data) // 2])
    again = opened(root)
    assert (contents(again), members(again)) == (kept, names)
    assert indexfile.read(first.path).label.tolist() == [0, 0, 0, 1, 1, 1]


def test_what_is_in_the_file_is_not_trusted(tmp_path: Path) -> None:
    """Also where the checksums are right."""
    index = opened(write_synsets(tmp_path / "train", 2))
    assert index.path is not None
    changes = {
        "shard": [0, 0, 0, 1, 1, 2],
        "offset": [0, 0, 0, 0, 0, 1 << 60],
        "size": [-1, 0, 0, 0, 0, 0],
        "label": [0, 0, 0, 0, 0, 2],
        "name_ends": [5, 4, 5, 6, 7, 96],
        "names": [1, 2],
    }
    for column, values in changes.items():
        target = tmp_path / f"changed-{column}"
        target.mkdir()
        columns = {**vars(index), column: np.array(values, dtype=indexfile.COLUMNS[column])}
        indexfile.write(Index(**columns), target)
        with pytest.raises(indexfile.Damaged):
            indexfile.read(target)
    for key, value in (("version", 2), ("groups", [3, 4]), ("num_classes", 1), ("class_names", ["a"]), ("shards", [])):
        target = tmp_path / f"changed-{key}"
        target.mkdir()
        indexfile.write(index, target)
        plain = json.loads((target / "index.json").read_text())
        (target / "index.json").write_text(json.dumps({**plain, key: value}))
        indexfile.write_sums(target)
        with pytest.raises(indexfile.Damaged):
            indexfile.read(target)


def test_shards_are_read_in_parallel_and_the_first_problem_is_told(tmp_path: Path) -> None:
    """F16: as many at once as there are threads; what is told does not depend on who is faster."""
    root = write_synsets(tmp_path / "train", indexing.THREADS)
    together = threading.Barrier(indexing.THREADS, timeout=20)

    class Waiting:
        seen: set[str] = set()  # noqa: RUF012

        def find(self, url: str) -> list[Object]:
            return STORAGE.find(url)

        def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
            if found.url not in self.seen:
                self.seen.add(found.url)
                together.wait()
            return STORAGE.read(found, ranges)

    told: list[tuple[int, int]] = []
    indexing.open_index(Wanted(path=str(root)), Waiting(), lambda done, total: told.append((done, total)))
    assert told == [(done, indexing.THREADS) for done in range(1, indexing.THREADS + 1)]
    for name in ("n00000010.tar", "n00000030.tar"):
        (root / name).write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"n00000010\.tar"):
        opened(root)


def test_training_and_test_are_told_apart_by_names(tmp_path: Path) -> None:
    """F23: tars and TFRecords in one folder, or in folders of their own."""
    for name in ("in-train-0.tar", "in-train-1.tar", "in-validation-0.tar"):
        write_tar(tmp_path / "flat" / name, {"0.jpg": name.encode(), "0.cls": b"1"})
        write_tar(tmp_path / "deep" / name.split("-")[1] / "0.tar", {"0.jpg": name.encode(), "0.cls": b"1"})
    for where, storage in ((str(tmp_path), STORAGE), ("s3://bucket", Elsewhere(tmp_path))):
        flat, deep = f"{where}/flat", f"{where}/deep"
        assert contents(opened(flat, storage), storage) == [b"in-train-0.tar", b"in-train-1.tar"]
        for path in (flat, deep):
            test = opened(path, storage, split="test", beside=True)
            assert contents(test, storage) == [b"in-validation-0.tar"]
        assert len(opened(deep, storage)) == 1
        assert len(opened(f"{flat}/in-validation-0.tar", storage)) == 1
        assert len(opened(f"{flat}/in-train-0.tar", storage, split="test")) == 1
        with pytest.raises(UserError, match="holds no validation set"):
            opened(f"{flat}/in-train-0.tar", storage, split="test", beside=True)


def test_several_paths_with_commas_between(tmp_path: Path) -> None:
    root = write_synsets(tmp_path / "train", 3)
    index = opened(f"{root}/n00000020.tar,{root}/n00000000.tar")
    assert [Path(one.url).name for one in index.shards] == ["n00000020.tar", "n00000000.tar"]
    assert index.label.tolist() == [1, 1, 1, 0, 0, 0]
    (tmp_path / "folder" / "a").mkdir(parents=True)
    (tmp_path / "folder" / "a" / "1.JPEG").write_bytes(b"1")
    with pytest.raises(UserError, match="holds folder and tar layouts: give them one at a time"):
        opened(f"{root},{tmp_path / 'folder'}")
