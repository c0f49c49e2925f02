"""`lockstep data index | count | mean | check` on shards and folders."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import cli, host
from lockstep.cli import data as data_commands
from lockstep.data import decode, sweep
from lockstep.data.storage import Access, open_storage
from lockstep.errors import UserError
from tests.data.files import cifar10, version
from tests.data.files import write_tar as write_cifar_tar
from tests.data.shards import contents, jpeg, noise, opened, write_synsets, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def data(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main(["data", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def write_images(root: Path, synsets: int = 3, images: int = 4) -> list[bytes]:
    made = [jpeg(number, 40 + number, 30) for number in range(synsets * images)]
    for number in range(synsets):
        part = made[number * images : (number + 1) * images]
        write_tar(root / f"n{number:08d}.tar", {f"{number}_{i}.JPEG": one for i, one in enumerate(part)})
    return made


def test_index_says_what_there_is_and_where_it_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F17, F21"""
    root = write_synsets(tmp_path / "train", 12)
    code, out, err = data(capsys, "index", root, "--key-prefix", "n000001")
    assert (code, err) == (0, "")
    assert out.startswith("2 of 12 shards, 6 images, 12 classes, 0.0 MB\nthe index is in ")
    assert Path(out.split("the index is in ")[1].strip()).is_dir()
    assert data(capsys, "count", root) == (0, "36\n", "")
    assert data(capsys, "count", root, "--key-prefix", "n000001") == (0, "6\n", "")
    assert data(capsys, "index", tmp_path / "none")[0] == 2


def test_index_notices_images_that_were_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The time of change of their folder stays. Reading says so, and the command that it names makes the index anew,
    also that of the test set, which only training asks for."""
    for name in ("set/train/a/1.JPEG", "set/train/b/2.JPEG", "set/val/b/3.JPEG", "other/a/4.JPEG"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"before")
    parts: list[dict[str, Any]] = [{}, {"split": "test", "beside": True, "classes": ("a", "b")}]
    before = [opened(tmp_path / "set", **part) for part in parts]
    other = opened(tmp_path / "other")
    for name in ("set/train/b/2.JPEG", "set/val/b/3.JPEG"):
        (tmp_path / name).write_bytes(b"much later")
    for index in before:
        with pytest.raises(UserError, match=r"[23]\.JPEG has changed since it was indexed: .*`lockstep data index`"):
            contents(index)
    (tmp_path / "link").symlink_to(tmp_path / "set")
    assert data(capsys, "index", tmp_path / "link")[0] == 0
    after = [opened(tmp_path / "set", **part) for part in parts]
    assert [contents(index) for index in after] == [[b"before", b"much later"], [b"much later"]]
    assert other.path is not None
    assert other.path.is_dir()


def test_labels_are_given_on_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F19"""
    write_tar(tmp_path / "some.tar", {"x/a.JPEG": b"a", "notes.txt": b""})
    (tmp_path / "train.txt").write_text("a.JPEG 41\n")
    out = data(capsys, "index", tmp_path / "some.tar", "--labels", tmp_path / "train.txt")[1]
    assert out.startswith("1 shard, 1 image, 42 classes, 0.0 MB\n1 file that is no image was passed over\n")
    (tmp_path / "train.txt").write_text("b.JPEG 41\n")
    code, out, err = data(capsys, "index", tmp_path / "some.tar", "--labels", tmp_path / "train.txt")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "has no label for x/a.JPEG; add it there" in err


def test_images_are_counted_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F21: in any tars, and in folders without classes; a list that has labels serves as well."""
    write_tar(tmp_path / "some.tar", {"a.JPEG": b"a", "b.JPEG": b"b"})
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.JPEG").write_bytes(b"a")
    assert data(capsys, "count", tmp_path / "some.tar") == (0, "2\n", "")
    assert data(capsys, "count", tmp_path / "flat") == (0, "1\n", "")
    assert data(capsys, "index", tmp_path / "some.tar")[0] == 2
    root = write_synsets(tmp_path / "train", 2)
    made = opened(root)
    assert opened(root, needs_labels=False).path == made.path


def test_the_mean_image_is_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F20: of all training images after scaling, the same bytes for any number of threads."""
    images = write_images(tmp_path / "train")
    out = tmp_path / "mean.npy"
    code, told, _ = data(capsys, "mean", tmp_path / "train", "--out", out, "--side", 20)
    assert (code, told) == (0, f"{out} is the mean of 12 images\n")
    expected = sum(decode.square(one, 20).astype(np.int64) for one in images) / 12
    assert (np.load(out) == expected).all()
    assert np.load(out).shape == (20, 20, 3)
    index, storage = opened(tmp_path / "train"), open_storage(Access())
    several = [sweep.mean_image(index, storage, 20, threads=threads).image.tobytes() for threads in (1, 2, 5)]
    assert set(several) == {np.load(out).tobytes()}
    data(capsys, "mean", tmp_path / "train", "--out", out)
    assert np.load(out).shape == (256, 256, 3)


def test_the_mean_of_many_images_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F20, F21: progress counts all images; white images are white in the mean, however many there are."""
    monkeypatch.setattr(sweep, "CHUNK", 3)
    monkeypatch.setattr(decode, "square", lambda data, side: np.full((side, side, 3), 255, dtype=np.uint8))
    write_synsets(tmp_path / "train", 5, images=4)
    seen: list[tuple[int, int]] = []
    mean = sweep.mean_image(
        opened(tmp_path / "train"), open_storage(Access()), 4, lambda done, total: seen.append((done, total))
    )
    assert mean.images == 20
    assert (mean.image == 255).all()
    assert seen == [(done, 20) for done in (3, 6, 9, 12, 15, 18, 20)]


def test_the_mean_is_computed_in_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F20: by as many threads as there are cores, none of which passes the barrier alone."""
    together = threading.Barrier(4, timeout=20)

    def square(data: bytes, side: int) -> decode.Pixels:
        together.wait()
        return np.zeros((side, side, 3), dtype=np.uint8)

    monkeypatch.setattr(sweep, "CHUNK", 3)
    monkeypatch.setattr(host, "count_cores", lambda: 4)
    monkeypatch.setattr(decode, "square", square)
    write_synsets(tmp_path / "train", 4, images=3)
    assert sweep.mean_image(opened(tmp_path / "train"), open_storage(Access()), 4).images == 12


def test_a_mean_of_nothing_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F20: no images, or none that can be decoded; broken ones among others are left out, and told."""
    write_tar(tmp_path / "empty" / "n00000001.tar", {"readme.txt": b""})
    assert "holds 1 shard and no images" in data(capsys, "mean", tmp_path / "empty", "--out", tmp_path / "m.npy")[2]
    write_tar(tmp_path / "broken" / "n00000001.tar", {"a.JPEG": noise(50)})
    code, _, err = data(capsys, "mean", tmp_path / "broken", "--out", tmp_path / "m.npy")
    assert code == 2
    assert "none of 1 images can be decoded" in err
    assert not (tmp_path / "m.npy").exists()
    write_tar(tmp_path / "broken" / "n00000001.tar", {"a.JPEG": noise(50), "b.JPEG": jpeg()})
    code, out, err = data(capsys, "mean", tmp_path / "broken", "--out", tmp_path / "m.npy", "--side", "8")
    assert (code, out) == (0, f"{tmp_path}/m.npy is the mean of 1 image; 1 cannot be decoded and does not count\n")
    assert "left out: " in err
    assert data(capsys, "mean", tmp_path / "broken", "--out", tmp_path / "m.npy", "--side", "0")[0] == 2
    assert "cannot write" in data(capsys, "mean", tmp_path / "broken", "--out", tmp_path / "no" / "m.npy")[2]


def test_check_describes_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F17, F21, F23"""
    write_images(tmp_path / "train")
    code, out, err = data(capsys, "check", tmp_path / "train", "--decode")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"training: 12 images in 3 shards, {sum(len(one) for one in write_images(tmp_path / 'x')) / 1e6:.1f} MB",
        *(f"  {tmp_path}/train/n{number:08d}.tar, 4 images" for number in range(3)),
        "  3 classes: n00000000, n00000001, n00000002",
        "  4 images of each class",
    ]
    out = data(capsys, "check", tmp_path / "train", "--key-prefix", "n00000001")[1]
    assert out.startswith("training: 4 images in 1 of 3 shards")
    assert "0 to 4 images of a class, 2 classes have none" in out


def test_check_looks_at_the_test_set_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train/a/1.JPEG", "train/b/2.JPEG", "val/b/3.JPEG"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"x")
    out = data(capsys, "check", tmp_path / "data")[1]
    assert "training: 2 images in 2 shards" in out
    assert "test: 1 image in 1 shard" in out
    assert "0 to 1 images of a class, 1 classes have none" in out


def test_check_tells_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6: not only the first; what is whole is described all the same."""
    write_images(tmp_path / "train", synsets=4)
    whole = (tmp_path / "train" / "n00000001.tar").read_bytes()
    (tmp_path / "train" / "n00000001.tar").write_bytes(whole[:700])
    (tmp_path / "train" / "n00000002.tar").write_bytes(b"nothing")
    write_tar(tmp_path / "train" / "n00000003.tar", {"empty.JPEG": b"", "broken.JPEG": noise(40), "good.JPEG": jpeg()})
    code, out, err = data(capsys, "check", tmp_path / "train", "--decode")
    assert code == 2
    assert "training: 7 images in 4 shards" in out
    assert [part in err for part in ("n00000001.tar is cut off in", "n00000002.tar is", "empty.JPEG is empty")] == [
        True
    ] * 3
    assert "broken.JPEG cannot be decoded" in err
    assert "good.JPEG" not in err


def test_check_still_knows_cifar_from_other_tars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, contents = version("cifar10", "binary", cifar10(30), cifar10(10))
    plain = write_cifar_tar(tmp_path / "cifar.tar", folder, contents, "w")
    assert "CIFAR-10: 30 training images" in data(capsys, "check", plain)[1]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_is_a_bar_or_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    root = write_synsets(tmp_path / "train", 3)
    monkeypatch.setattr(data_commands, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    err = data(capsys, "count", root)[2]
    if is_terminal:
        assert "━" in err
        assert "3/3" in err
    else:
        assert err == "index: 1 of 3\nindex: 2 of 3\nindex: 3 of 3\n"
    assert data(capsys, "count", root)[2].count("of 3") == 0  # it is there already
