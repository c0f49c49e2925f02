"""The same shards on disk, in S3 and on a web server give the same index, and the same bytes."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import cli
from lockstep.config import Data
from lockstep.data import open_dataset
from lockstep.data.index import Index
from lockstep.data.source import in_order
from lockstep.data.storage import Access, Storage, open_storage
from lockstep.errors import UserError
from tests.data import pictures
from tests.data.faultproxy import FaultProxy
from tests.data.s3server import Server
from tests.data.shards import contents, example, noise, opened, write_synsets, write_tar, write_tfrecords
from tests.data.webserver import WebServer

BUCKET = "everywhere"
PARTS: list[dict[str, Any]] = [{}, {"split": "test", "beside": True}]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def storage(owner: Server) -> Storage:
    return open_storage(Access())


def put(s3: Server, root: Path) -> str:
    """Everything below a directory, in a place of its own."""
    place = f"{root.name}-{random.SystemRandom().randrange(1 << 40)}"
    for path in sorted(root.rglob("*")):
        if path.is_file():
            s3.put(BUCKET, f"{place}/{path.relative_to(root)}", path.read_bytes())
    return f"s3://{BUCKET}/{place}"


def assert_same(one: Index, other: Index, storage: Storage) -> None:
    for column in ("shard", "offset", "size", "label", "name_ends", "names"):
        assert np.array_equal(getattr(one, column), getattr(other, column)), column
    assert one.fingerprint() == other.fingerprint()
    assert (one.groups, one.class_names, one.num_found) == (other.groups, other.class_names, other.num_found)
    assert contents(one, storage) == contents(other, storage)


def test_tars(tmp_path: Path, owner: Server, storage: Storage) -> None:
    """F16, F17, F19"""
    root = write_synsets(tmp_path / "train", 5)
    write_tar(root / "n00000050.tar", {f"{number}.JPEG": noise(300_000, number) for number in range(3)})
    url = put(owner, root)
    for prefix in ("", "n0000002", "n0000005"):
        assert_same(opened(root, key_prefix=prefix), opened(url, storage, key_prefix=prefix), storage)
    files = {f"/{path.name}": path.read_bytes() for path in root.iterdir()}
    with WebServer(files).running() as server:
        web = opened(f"{server.url}/n000000{{00,10,20,30,40,50}}.tar", storage)
        assert_same(opened(root), web, storage)


def test_the_shards_of_a_leaf_are_read_from_s3_at_once(tmp_path: Path, owner: Server) -> None:
    """F16: each by a request of its own, which a slow server has before it while the others come."""
    url = put(owner, pictures.write_tars(tmp_path / "train", classes=4, each=2))
    with FaultProxy(owner.port, latency_seconds=0.2).running() as proxy:
        data = Data(source="imagenet", path=url, endpoint_url=proxy.url, hold_out=1, side=16, crop_padding=0)
        source = open_dataset(data, 0).train
        proxy.most_open = 0
        source.fetch(in_order(0, len(source)))
    assert proxy.most_open >= 2


def test_folders_and_records(tmp_path: Path, owner: Server, storage: Storage) -> None:
    """F23"""
    hidden = ("train/.a/5.JPEG", "train/a/.x/6.JPEG", "train/0/notes.txt")
    for name in ("train/b/1.JPEG", "train/a-b/2.JPEG", "train/a/x/3.JPEG", "val/b/4.JPEG", *hidden):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(name.encode())
    records = tmp_path / "records"
    for part in ("train", "validation"):
        write_tfrecords(records / f"{part}-00000-of-00001", [example(noise(2000, i), i + 1) for i in range(9)])
    for root in (tmp_path / "images", records):
        url = put(owner, root)
        for options in PARTS:
            assert_same(opened(root, **options), opened(url, storage, **options), storage)


def test_a_test_set_and_1001_classes(tmp_path: Path, owner: Server) -> None:
    """F19, F23: by the same means as the training set, and one number later with a background."""
    train = write_tar(tmp_path / "set" / "a.tar", {f"t{i}.JPEG": pictures.of_kind("colour", seed=i) for i in range(3)})
    val = write_tar(tmp_path / "set" / "b.tar", {f"v/{i}.JPEG": pictures.of_kind("grey", seed=i) for i in range(2)})
    (tmp_path / "set" / "train.txt").write_text("t0.JPEG 0\nt1.JPEG 999\nt2.JPEG 5\n")
    (tmp_path / "set" / "val.txt").write_text("0.JPEG 999\n1.JPEG 7\n")
    s3 = put(owner, tmp_path / "set")
    with WebServer({f"/{path.name}": path.read_bytes() for path in (tmp_path / "set").iterdir()}).running() as server:
        for where in (s3, server.url, str(tmp_path / "set")):
            data = Data(
                source="imagenet",
                path=f"{where}/{train.name}",
                label_path=f"{where}/train.txt",
                eval_path=f"{where}/{val.name}",
                eval_label_path=f"{where}/val.txt",
                side=16,
                crop_padding=0,
            )
            for background, count in ((False, 1000), (True, 1001)):
                dataset = open_dataset(replace(data, background=background), 0)
                assert dataset.num_classes == count
                batches = [dataset.train.fetch(in_order(0, 3)), dataset.test.fetch(in_order(0, 2))]
                labels = [(batch.labels - background).tolist() for batch in batches]
                assert labels == [[0, 999, 5], [999, 7]]


def test_commands(tmp_path: Path, owner: Server, storage: Storage, capsys: pytest.CaptureFixture[str]) -> None:
    """F19, F21: labels lie in S3 as well; what changes there is noticed."""
    write_tar(tmp_path / "some" / "part.tar", {"x/a.JPEG": noise(100), "b.JPEG": noise(200)})
    (tmp_path / "some" / "train.txt").write_text("a.JPEG 3\nb.JPEG 1\n")
    url = put(owner, tmp_path / "some")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    options = ["--labels", f"{url}/train.txt", "--endpoint-url", endpoint]
    assert cli.main(["data", "index", f"{url}/part.tar", *options]) == 0
    assert capsys.readouterr().out.startswith("1 shard, 2 images, 4 classes")
    assert cli.main(["data", "count", url]) == 0
    assert capsys.readouterr().out == "2\n"
    before = opened(f"{url}/part.tar", storage, label_path=f"{url}/train.txt")
    other = write_tar(tmp_path / "some" / "part.tar", {"x/a.JPEG": noise(101)})
    owner.put(BUCKET, url.removeprefix(f"s3://{BUCKET}/") + "/part.tar", other.read_bytes())
    with pytest.raises(UserError, match=r"part\.tar has changed since it was indexed"):
        contents(before, storage)
    assert len(opened(f"{url}/part.tar", storage, label_path=f"{url}/train.txt")) == 1
