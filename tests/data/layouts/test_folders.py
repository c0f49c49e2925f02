"""Images as files in folders, on this host and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import UserError
from tests.data.shards import Elsewhere, contents, members, opened


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(root: Path, *names: str) -> Path:
    """Files that hold their own names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


NAMES = ("train/b/2.JPEG", "train/b/1.JPEG", "train/a-b/x.png", "train/a/deep/3.jpg", "train/c/4.JPEG", "val/b/5.JPEG")


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_folder_for_each_class(tmp_path: Path, where: str) -> None:
    """F23: labels are ranks of sorted folders; the same order wherever they lie."""
    root = write(tmp_path / "data", *NAMES, "train/b/notes.txt", "train/b/._1.JPEG")
    storage = Elsewhere(tmp_path)
    path, options = (root, {}) if where == "here" else ("s3://bucket/data", {"storage": storage})
    index = opened(path, **options)
    assert members(index) == ["deep/3.jpg", "x.png", "1.JPEG", "2.JPEG", "4.JPEG"]
    assert index.label.tolist() == [0, 1, 2, 2, 3]
    assert index.class_names == ("a", "a-b", "b", "c")
    assert index.groups == (1, 1, 2, 1)
    names = [name.encode() for name in ("train/a/deep/3.jpg", "train/a-b/x.png", "train/b/1.JPEG", "train/b/2.JPEG")]
    assert contents(index, **options)[:4] == names
    assert index.name(2) == f"{path}/train/b/1.JPEG"
    assert index.passed_over == 2
    test = opened(path, split="test", beside=True, **options)
    assert (members(test), test.label.tolist(), test.num_classes) == (["5.JPEG"], [2], 4)
    part = opened(path, key_prefix="b", **options)
    assert (part.label.tolist(), part.num_taken, part.num_found) == ([2, 2], 1, 4)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_only_folders_with_images_are_classes(tmp_path: Path, where: str) -> None:
    """F23: by the same rule wherever they lie: neither empty ones, nor such as begin with a dot, which hold copies."""
    names = ("b/1.JPEG", "b/.thumbs/1.JPEG", "d/deep/2.JPEG", ".cache/3.JPEG", "a/notes.txt", "c/.thumbs/4.JPEG")
    root = write(tmp_path / "data", *(f"train/{name}" for name in names), "val/d/5.JPEG", "val/.cache/6.JPEG")
    (root / "train" / "empty").mkdir()
    write(tmp_path / "flat", "x.JPEG", ".thumbs/x.JPEG", "more/notes.txt")
    (tmp_path / "labels.txt").write_text("x.JPEG 3\n")
    start, options = (tmp_path, {}) if where == "here" else ("s3://bucket", {"storage": Elsewhere(tmp_path)})
    index = opened(f"{start}/data", **options)
    assert (index.class_names, index.label.tolist()) == (("b", "d"), [0, 1])
    assert (members(index), index.num_found) == (["1.JPEG", "deep/2.JPEG"], 2)
    test = opened(f"{start}/data", split="test", beside=True, **options)
    assert (members(test), test.label.tolist(), test.num_classes) == (["5.JPEG"], [1], 2)
    flat = opened(f"{start}/flat", label_path=f"{start}/labels.txt", **options)
    assert (members(flat), flat.label.tolist()) == (["x.JPEG"], [3])


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_images_without_folders_need_a_label_file(tmp_path: Path, where: str) -> None:
    """F19, F23: as ILSVRC2012_img_val is after unpacking."""
    root = write(tmp_path / "val", "x2.JPEG", "x1.JPEG")
    (tmp_path / "val.txt").write_text("x1.JPEG 4\nx2.JPEG 3\n")
    storage = Elsewhere(tmp_path)
    path, options = (root, {}) if where == "here" else ("s3://bucket/val", {"storage": storage})
    labels = str(tmp_path / "val.txt") if where == "here" else "s3://bucket/val.txt"
    index = opened(path, label_path=labels, **options)
    assert (members(index), index.label.tolist(), index.num_classes) == (["x1.JPEG", "x2.JPEG"], [4, 3], 5)
    with pytest.raises(UserError, match=r"has no folder for each class: .* with --labels"):
        opened(path, **options)


def test_the_classes_of_another_training_set(tmp_path: Path) -> None:
    """F23: a test set with fewer folders keeps the numbers of its training set."""
    root = write(tmp_path / "val", "b/1.JPEG", "d/2.JPEG")
    assert opened(root, split="test", classes=("a", "b", "c", "d")).label.tolist() == [1, 3]
    with pytest.raises(UserError, match=r"d in .* is no class of the training set, which has 2, from a to b"):
        opened(root, split="test", classes=("a", "b"))


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    root = write(tmp_path / "data", "a/1.JPEG")
    with pytest.raises(UserError, match=r"holds no validation set .* --eval-data, or keep some .* --hold-out"):
        opened(root, split="test", beside=True)
    assert len(opened(root, split="test")) == 1
    train = write(tmp_path / "more", "train/a/1.JPEG")
    with pytest.raises(UserError, match="holds no validation set"):
        opened(train, split="test")
    with pytest.raises(UserError, match="holds a validation set and no training set"):
        opened(write(tmp_path / "other", "val/a/1.JPEG"))
    with pytest.raises(UserError, match="holds a validation set and no training set"):
        opened("s3://bucket/other", Elsewhere(tmp_path))
    with pytest.raises(UserError, match=r"tars nor TFRecords nor images \(\.jpg, \.jpeg, \.png\): give"):
        opened(write(tmp_path / "nothing", "a/1.webp"))


def test_a_file_that_comes_or_goes_is_noticed(tmp_path: Path) -> None:
    """At any depth."""
    root = write(tmp_path / "data", "a/deep/1.JPEG", "b/2.JPEG")
    first = opened(root)
    assert opened(root).path == first.path
    write(root, "a/deep/3.JPEG")
    assert len(opened(root)) == 3
    (root / "b" / "2.JPEG").unlink()
    write(root, "b/4.JPEG")
    assert members(opened(root)) == ["deep/1.JPEG", "deep/3.JPEG", "4.JPEG"]


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_validation_set_may_lie_beside_classes(tmp_path: Path, where: str) -> None:
    """F23: it is none of them."""
    root = write(tmp_path / "data", "a/1.JPEG", "b/2.JPEG", "val/b/3.JPEG")
    storage = Elsewhere(tmp_path)
    path, options = (root, {}) if where == "here" else ("s3://bucket/data", {"storage": storage})
    train = opened(path, **options)
    assert (train.class_names, members(train)) == (("a", "b"), ["1.JPEG", "2.JPEG"])
    test = opened(path, split="test", beside=True, classes=train.class_names, **options)
    assert (test.label.tolist(), members(test)) == ([1], ["3.JPEG"])


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_validation_set_may_lie_beside_images_without_folders(tmp_path: Path, where: str) -> None:
    """F19, F23: none of it trains, wherever the images lie, whether it has folders or not."""
    write(tmp_path / "data", "2.JPEG", "1.JPEG", "val/3.JPEG", "test/a/4.JPEG", "more/notes.txt", "val/notes.txt")
    (tmp_path / "labels.txt").write_text("1.JPEG 4\n2.JPEG 3\n3.JPEG 2\n4.JPEG 1\n")
    start, options = (tmp_path, {}) if where == "here" else ("s3://bucket", {"storage": Elsewhere(tmp_path)})
    wanted: dict[str, Any] = {"label_path": f"{start}/labels.txt", **options}
    train = opened(f"{start}/data", **wanted)
    assert (members(train), train.label.tolist(), train.passed_over) == (["1.JPEG", "2.JPEG"], [4, 3], 1)
    (tmp_path / "data" / "test" / "a" / "4.JPEG").unlink()
    (tmp_path / "data" / "test" / "a").rmdir()
    assert opened(f"{start}/data", **wanted).path == train.path
    test = opened(f"{start}/data", split="test", beside=True, **wanted)
    assert (members(test), test.label.tolist()) == (["3.JPEG"], [2])


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_of_several_test_sets_one_is_taken(tmp_path: Path, where: str) -> None:
    """F23: the same one wherever they lie, and none of them trains."""
    write(tmp_path / "data", "train/a/1.JPEG", "train/b/2.JPEG", "test/a/4.JPEG", "test/b/5.JPEG", "val/b/3.JPEG")
    path, options = (
        (tmp_path / "data", {}) if where == "here" else ("s3://bucket/data", {"storage": Elsewhere(tmp_path)})
    )
    assert members(opened(path, **options)) == ["1.JPEG", "2.JPEG"]
    test = opened(path, split="test", beside=True, classes=("a", "b"), **options)
    assert (members(test), test.label.tolist()) == (["3.JPEG"], [1])


def test_links_in_circles_are_no_trap(tmp_path: Path) -> None:
    root = write(tmp_path / "data", "a/1.JPEG", "b/2.JPEG")
    for name in ("a/again", "a/deep/again", "again"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(root / "b" if name == "again" else root)
    assert members(opened(root)) == ["1.JPEG", "2.JPEG", "2.JPEG"]
