"""Scans of shards elsewhere are kept: what was read once is not read again, unless it changed or was damaged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep.data import scanfile
from lockstep.data.layouts import Group, Inner, columns
from lockstep.data.storage import Object, Range
from lockstep.errors import UserError
from tests.data.shards import Elsewhere, noise, opened, write_synsets, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Watched(Elsewhere):
    """Says which shards were read, and fails at one of them."""

    fails_at = ""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.shards: set[str] = set()

    def read(self, found: Object, ranges: Sequence[Range]) -> list[bytes]:
        name = found.url.rsplit("/", 1)[-1]
        if name == self.fails_at:
            raise UserError(f"cannot read {name}")
        self.shards.add(name)
        return super().read(found, ranges)


def test_only_a_changed_shard_is_read_again(tmp_path: Path) -> None:
    root = write_synsets(tmp_path / "train", 3)
    away = Watched(tmp_path)
    opened("s3://bucket/train", away)
    assert away.shards == {"n00000000.tar", "n00000010.tar", "n00000020.tar"}
    away.shards.clear()
    write_tar(root / "n00000010.tar", {"other.JPEG": noise(100)})
    os.utime(root / "n00000010.tar", ns=(1, 1))
    index = opened("s3://bucket/train", away)
    assert away.shards == {"n00000010.tar"}
    assert index.groups == (3, 1, 3)


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    write_synsets(tmp_path / "train", 4)
    away = Watched(tmp_path)
    away.fails_at = "n00000030.tar"
    with pytest.raises(UserError, match="cannot read n00000030"):
        opened("s3://bucket/train", away)
    away.shards.clear()
    away.fails_at = ""
    assert len(opened("s3://bucket/train", away)) == 12
    assert "n00000030.tar" in away.shards
    assert "n00000000.tar" not in away.shards


def test_other_labels_need_no_shard(tmp_path: Path) -> None:
    """F19"""
    write_tar(tmp_path / "some.tar", {"a.JPEG": b"a"})
    away = Watched(tmp_path)
    for label in (3, 4):
        (tmp_path / "train.txt").write_text(f"a.JPEG {label}\n")
        os.utime(tmp_path / "train.txt", ns=(label, label))
        away.shards.clear()
        assert opened("s3://bucket/some.tar", away, label_path="s3://bucket/train.txt").label.tolist() == [label]
    assert away.shards == {"train.txt"}


def test_damage_is_noticed(tmp_path: Path) -> None:
    scan = columns("a", [b"x", b"yz"], [0, 5], [4, 6], [1, -1], passed_over=3, inner=[Inner("b.tar", (7, 9))])
    path = tmp_path / "deep" / "scan"
    scanfile.write(scan, path)
    found = scanfile.read(path)
    assert found is not None
    assert (found.groups, found.inner, found.passed_over) == ((Group("a", 2),), (Inner("b.tar", (7, 9)),), 3)
    assert (found.split_names(), found.offset.tolist(), found.label.tolist()) == ([b"x", b"yz"], [0, 5], [1, -1])
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        changed = scanfile.read(path)
        assert changed is None or changed.offset.tolist() == [0, 5]
        path.write_bytes(whole[:place])
        assert scanfile.read(path) is None
    assert [one.name for one in path.parent.iterdir()] == ["scan"]
