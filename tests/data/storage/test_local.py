"""Shards that are files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.data.storage import Access, Object, Storage, open_storage
from lockstep.errors import UserError


@pytest.fixture
def storage() -> Storage:
    return open_storage(Access())


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(name.encode())


def names(storage: Storage, url: str) -> list[str]:
    found = storage.find(url)
    assert all(one.url.startswith("/") for one in found)
    return [str(Path(one.url).relative_to(Path.cwd())) for one in found]


def test_a_file_a_directory_a_glob_and_braces(workspace: Path, storage: Storage) -> None:
    write("d/b/2.tar", "d/a-1.tar", "d/a/1.tar", "d/b/10.tar", "e.tar")
    assert names(storage, "e.tar") == ["e.tar"]
    assert (
        names(storage, "d")
        == names(storage, f"{workspace}/d/")
        == ["d/a-1.tar", "d/a/1.tar", "d/b/10.tar", "d/b/2.tar"]
    )
    assert names(storage, "d/*/1*.tar") == ["d/a/1.tar", "d/b/10.tar"]
    assert names(storage, "d/{b,a}/{1..1}*.tar") == ["d/a/1.tar", "d/b/10.tar"]
    assert names(storage, "{e.tar,d/b,d/b/2.tar}") == ["d/b/10.tar", "d/b/2.tar", "e.tar"]
    write("{x,y}.tar")
    assert names(storage, "{x,y}.tar") == ["{x,y}.tar"]


def test_what_is_not_there_is_named(workspace: Path, storage: Storage) -> None:
    write("shard-0.tar")
    Path("empty").mkdir()
    Path("nowhere").symlink_to("gone")
    for url, said in {
        "none.tar": "there is no none.tar",
        "*.zip": "there is no \\*.zip: no file fits this pattern",
        "shard-{0..1}.tar": "there is no shard-1.tar",
        "empty": "there is no file below empty",
        "nowhere": "cannot read .*/nowhere: No such file",
        "/dev/null": "/dev/null is not a file",
        "gs://bucket/x": "gs:// is not known: data may be files, or lie at s3://",
    }.items():
        with pytest.raises(UserError, match=said):
            storage.find(url)


def test_links_are_followed_but_never_in_circles(workspace: Path, storage: Storage) -> None:
    write("real/1", "data/2")
    Path("data/linked").symlink_to(workspace / "real")
    Path("real/up").symlink_to(workspace / "data")
    assert names(storage, "data") == ["data/2", "data/linked/1"]


def test_ranges_of_a_file(workspace: Path, storage: Storage) -> None:
    Path("x").write_bytes(bytes(range(200)))
    found = storage.find("x")[0]
    assert found.size == 200
    assert storage.read(found, [(3, 5), (0, 0), (199, 200), (0, 200)]) == [
        b"\x03\x04",
        b"",
        b"\xc7",
        bytes(range(200)),
    ]
    assert storage.read(found, []) == []
    with pytest.raises(UserError, match="x ends at byte 200, before byte 201"):
        storage.read(found, [(0, 1), (150, 201)])


def test_a_file_that_changed_is_refused_by_its_tag_or_else_its_size(workspace: Path, storage: Storage) -> None:
    Path("x").write_bytes(b"before")
    found = storage.find("x")[0]
    Path("x").write_bytes(b"later!")
    os.utime("x", ns=(1, 1))
    with pytest.raises(UserError, match="x has changed since it was indexed"):
        storage.read(found, [(0, 6)])
    assert storage.read(Object(found.url, 6, ""), [(0, 6)]) == [b"later!"]
    with pytest.raises(UserError, match="x has changed since it was indexed"):
        storage.read(Object(found.url, 5, ""), [(0, 5)])
    Path("x").unlink()
    with pytest.raises(UserError, match=r"cannot read .*x: No such file"):
        storage.read(found, [(0, 6)])
