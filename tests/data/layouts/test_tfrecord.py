"""ImageNet's TFRecords: the index has the encoded bytes themselves; checksums count."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lockstep.data.layouts import tfrecord
from lockstep.errors import UserError
from tests.data.shards import Elsewhere, contents, example, members, noise, opened, write_tfrecords


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(root: Path, part: str = "train", shards: int = 3, images: int = 4) -> Path:
    for number in range(shards):
        first = number * images
        records = [
            example(noise(500, i), i % 1000 + 1, f"n{i}.JPEG" if i % 2 else None) for i in range(first, first + images)
        ]
        write_tfrecords(root / f"{part}-{number:05d}-of-{shards:05d}", records)
    return root


def test_images_are_found_within_records(tmp_path: Path) -> None:
    """F23: as P's users have them; labels begin at 1 there, and at 0 here."""
    root = write(write(tmp_path / "records"), "validation", shards=1)
    index = opened(root)
    assert contents(index) == [noise(500, i) for i in range(12)]
    assert index.label.tolist() == list(range(12))
    assert (index.num_classes, index.groups) == (12, (4, 4, 4))
    assert members(index)[:3] == ["record 0", "n1.JPEG", "record 2"]
    assert index.name(1) == f"{root}/train-00000-of-00003, n1.JPEG"
    test = opened(root, split="test", beside=True)
    assert contents(test) == [noise(500, i) for i in range(4)]
    assert opened(root, key_prefix="train-00002").label.tolist() == [8, 9, 10, 11]


def test_shards_elsewhere_are_read_in_large_pieces(tmp_path: Path) -> None:
    write(tmp_path / "records", shards=1, images=200)
    away = Elsewhere(tmp_path)
    index = opened("s3://bucket/records", away)
    assert len(index) == 200
    assert len(away.requests) == 1


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([example(b"x", 0)], "record 0: label 0 is out of range, which begins at 1"),
        ([example(b"x", 5), example(b"x", -3)], "record 1: label -3 is out of range"),
        ([example(b"x", 1 << 40)], "record 0: label 1099511627776 is out of range"),
        ([example(None, 5)], "record 0 has not one image/encoded and one image/class/label"),
        ([example(b"", 5)], "record 0 has not one image/encoded"),
        ([example(b"x", None)], "record 0 has not one image/encoded"),
        ([b"not an example"], r"record 0 is no tf\.train\.Example"),
        ([b""], "record 0 has not one image/encoded"),
    ],
)
def test_records_of_another_kind(tmp_path: Path, records: list[bytes], told: str) -> None:
    """F23"""
    with pytest.raises(UserError, match=told):
        opened(write_tfrecords(tmp_path / "train-00000-of-00001", records))


def test_damage_is_told_with_shard_and_record(tmp_path: Path) -> None:
    """F6: lengths and data have checksums; a shard that ends early has none of its last record."""
    path = write_tfrecords(tmp_path / "train-00000-of-00001", [example(noise(500, i), 5) for i in range(2)])
    whole = path.read_bytes()
    second = len(whole) // 2
    for place, told in (
        (second + 3, "record 1: its length does not have its checksum"),
        (40, "record 0: its data do not"),
    ):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=told):
            opened(path)
    for length, told in ((second + 5, "record 1 is cut off"), (len(whole) - 1, r"record 1 is cut off after \d+ of")):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=told):
            opened(path)


def test_what_is_not_said_twice(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a.JPEG 1\n")
    with pytest.raises(UserError, match="TFRecords hold their labels: leave out --labels"):
        opened(write(tmp_path / "records"), label_path=str(tmp_path / "train.txt"))


def test_a_missing_library_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "records")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(UserError, match=r"TFRecords need google-crc32c: pip install 'lockstep-train\[imagenet\]'"):
        opened(root)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("train-00000-of-01024", True), ("validation-00127-of-00128", True), ("a.tfrecord", True), ("b.tfrecords", True)]
    + [(name, False) for name in ("train-0-of-1", "a.tar", "._a.tfrecord", "train.txt")],
)
def test_names(name: str, is_one: bool) -> None:
    assert tfrecord.is_tfrecord(name) is is_one
