"""WebDataset tars: samples of several members, labels beside the images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.errors import UserError
from tests.data.shards import contents, members, opened, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_labels_lie_beside_images(tmp_path: Path) -> None:
    """F23: in .cls before or after the image, or in .json; several extensions, several shards by a brace range."""
    write_tar(
        tmp_path / "t-000.tar", {"a/0.jpg": b"0", "a/0.cls": b"3\n", "1.cls": b"0", "1.jpeg": b"1", "__key__": b""}
    )
    plain = {"2.png": b"2", "2.json": json.dumps({"label": 9, "x": [1]}).encode(), "2.txt": b"a dog"}
    write_tar(tmp_path / "t-001.tar", {**plain, "3.json": b'{"cls": 4}', "3.JPG": b"3"})
    index = opened(f"{tmp_path}/t-{{000..001}}.tar")
    assert index.label.tolist() == [3, 0, 9, 4]
    assert members(index) == ["a/0.jpg", "1.jpeg", "2.png", "3.JPG"]
    assert contents(index) == [b"0", b"1", b"2", b"3"]
    assert (index.num_classes, index.groups, index.passed_over) == (10, (2, 2), 2)


def test_a_label_file_wins(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0.jpg 5\n")
    write_tar(tmp_path / "t.tar", {"0.jpg": b"0", "0.cls": b"3"})
    assert opened(tmp_path / "t.tar", label_path=str(tmp_path / "train.txt")).label.tolist() == [5]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"0.jpg": b"0", "0.cls": b"three"}, r"0\.cls: a number from 0 to 99999 is wanted"),
        ({"0.jpg": b"0", "0.cls": b"-1"}, r"0\.cls: a number"),
        ({"0.jpg": b"0", "0.cls": b"9" * 5000}, r"0\.cls: a number"),
        ({"0.jpg": b"0", "0.cls": b""}, r"0\.cls: a number"),
        ({"0.jpg": b"0", "0.json": b'{"label": 100000}'}, r"0\.json: a number"),
        ({"0.jpg": b"0", "0.json": b'{"label": 1}', "0.cls": b"2"}, r"0\.cls: label 2 contradicts 1"),
        ({"0.jpg": b"0", "0.cls": b"2", "1.jpg": b"1"}, r"1\.jpg has no label"),
        ({"0.jpg": b"0", "0.png": b"0", "0.cls": b"2"}, r"0\.png is a second image of its sample"),
        ({"0.jpg": b"0", "0.json": b"[" * 60000}, "does not say what its images show"),
        ({"0.jpg": b"0", "0.json": b'{"label": true}'}, "does not say what its images show"),
        ({"0.txt": b"0", "0.json": b'{"label": 1}'}, "holds 1 shard and no images"),
    ],
)
def test_what_is_wrong_is_told_with_shard_and_member(tmp_path: Path, files: dict[str, bytes], told: str) -> None:
    """F6"""
    with pytest.raises(UserError, match=told):
        opened(write_tar(tmp_path / "t.tar", files))
