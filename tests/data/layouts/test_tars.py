"""Tars: one per synset, any other with a label file, tars in tars; what is wrong with one is a sentence."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from lockstep.data.layouts import rangefile
from lockstep.errors import UserError
from tests.data.shards import Elsewhere, contents, members, noise, opened, write_synsets, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def labels(tmp_path: Path, text: str) -> str:
    path = tmp_path / "train.txt"
    path.write_text(text)
    return str(path)


def test_a_tar_for_each_synset(tmp_path: Path) -> None:
    """F23: shard, offset, size; the label is the rank of the synset."""
    index = opened(write_synsets(tmp_path / "train", 4))
    assert index.label.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert contents(index) == [noise(100 + 10 * i + n, n * 100 + i) for n in range(4) for i in range(3)]
    assert index.groups == (3, 3, 3, 3)
    assert index.class_names == ("n00000000", "n00000010", "n00000020", "n00000030")
    assert index.name(4) == f"{tmp_path}/train/n00000010.tar, n00000010_1.JPEG"


def test_a_prefix_picks_shards_and_leaves_their_labels(tmp_path: Path) -> None:
    """F16, F17: by key prefix; a shorter prefix takes all."""
    root = write_synsets(tmp_path / "train", 12)
    index = opened(root, key_prefix="n000001")
    assert (index.num_taken, index.num_found, index.num_classes) == (2, 12, 12)
    assert sorted(set(index.label.tolist())) == [10, 11]
    assert contents(index) == contents(opened(root))[30:]
    assert opened(root, key_prefix="n").num_taken == 12
    with pytest.raises(UserError, match="begins with 'n9': there are 12, from n00000000 to n00000110; give another"):
        opened(root, key_prefix="n9")


def test_a_wrong_prefix_is_told_before_all_shards_are_read(tmp_path: Path) -> None:
    """F17"""
    for number in range(20):
        write_tar(tmp_path / "parts" / f"part-{number}.tar", {"a.JPEG": noise(100)})
    write_synsets(tmp_path / "train", 3)
    for name, requests in (("train", 0), ("parts", 1)):
        away = Elsewhere(tmp_path)
        with pytest.raises(UserError, match="begins with 'x': there are"):
            opened(f"s3://bucket/{name}", away, key_prefix="x")
        assert len(away.requests) == requests


def test_label_files_map_base_names(tmp_path: Path) -> None:
    """F19: also for members below folders, and for names with folders in the file."""
    write_tar(tmp_path / "some.tar", {"./deep/er/a.JPEG": b"aa", "b.jpg": b"b", "c.PNG": b"cc"})
    index = opened(tmp_path / "some.tar", label_path=labels(tmp_path, "a.JPEG 7\nx/b.jpg 0\r\n\nc.PNG  2\n"))
    assert index.label.tolist() == [7, 0, 2]
    assert (index.num_classes, index.class_names) == (8, None)
    assert contents(index) == [b"aa", b"b", b"cc"]


def test_a_label_file_wins_over_ranks(tmp_path: Path) -> None:
    """F19"""
    root = write_synsets(tmp_path / "train", 2, images=1)
    file = labels(tmp_path, "n00000000_0.JPEG 5\nn00000010_0.JPEG 3\n")
    assert opened(root, label_path=file).label.tolist() == [5, 3]


def test_a_missing_label_is_told_by_name(tmp_path: Path) -> None:
    """F19"""
    write_tar(tmp_path / "some.tar", {"a.JPEG": b"a", "d/b.JPEG": b"b", "c.JPEG": b"c"})
    with pytest.raises(UserError, match=r"some\.tar: .*train\.txt has no label for d/b\.JPEG and 1 more"):
        opened(tmp_path / "some.tar", label_path=labels(tmp_path, "a.JPEG 7\n"))
    with pytest.raises(UserError, match=r"does not say what its images show: some is no synset .* with --labels"):
        opened(tmp_path / "some.tar")


def test_a_tar_of_tars(tmp_path: Path) -> None:
    """F16, F17, F23: each inner one is a group, has its rank, and can be picked by its name."""
    root = write_synsets(tmp_path / "train", 5)
    whole = opened(root)
    outer = write_tar(tmp_path / "all.tar", {f"x/{path.name}": path.read_bytes() for path in sorted(root.iterdir())})
    index = opened(outer)
    assert contents(index) == contents(whole)
    assert index.label.tolist() == whole.label.tolist()
    assert index.groups == whole.groups
    assert index.class_names == whole.class_names
    assert (len(index.shards), index.num_taken, index.num_found) == (1, 5, 5)
    assert index.name(4) == f"{outer}, x/n00000010.tar/n00000010_1.JPEG"
    part = opened(outer, key_prefix="n0000003")
    assert (part.num_taken, part.num_found, part.label.tolist()) == (1, 5, [3, 3, 3])
    with pytest.raises(UserError, match="begins with 'n9': there are 5"):
        opened(outer, key_prefix="n9")
    with pytest.raises(UserError, match="a tar in a tar in a tar"):
        opened(write_tar(tmp_path / "more.tar", {"all.tar": outer.read_bytes()}))


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_strange_names(tmp_path: Path, form: int) -> None:
    names = ["a/" * 150 + "x.JPEG", "ü" * 60 + ".JPEG", "../../etc/b.JPEG", "/root/c.JPEG", "d\n\x1b[31m.JPEG"]
    index = opened(write_tar(tmp_path / "n00000001.tar", {name: name.encode() for name in names}, form))
    assert members(index) == names
    assert contents(index) == [name.encode() for name in names]
    assert index.name(4).endswith(r"'d\n\x1b[31m.JPEG'")
    assert not (tmp_path / "etc").exists()


def test_what_is_no_image_is_passed_over(tmp_path: Path) -> None:
    """Links, devices, AppleDouble files and others are counted; a folder is nothing to count."""
    strange = []
    for name, kind in (("a.JPEG", tarfile.SYMTYPE), ("b.JPEG", tarfile.LNKTYPE), ("c.JPEG", tarfile.CHRTYPE)):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        strange.append((member, b""))
    folder = tarfile.TarInfo("d.JPEG")
    folder.type = tarfile.DIRTYPE
    plain = [(tarfile.TarInfo(name), b"x") for name in ("._e.JPEG", "._e.tar", "Thumbs.db", "f.JPEG")]
    index = opened(write_tar(tmp_path / "n00000001.tar", [*strange, (folder, b""), *plain]))
    assert members(index) == ["f.JPEG"]
    assert index.passed_over == 6


def test_a_tar_that_is_cut_off(tmp_path: Path) -> None:
    """Wherever it ends before its end: the sentence names the shard, and the member if that is not whole."""
    whole = write_tar(tmp_path / "n00000001.tar", {"a.JPEG": noise(700), "b.JPEG": noise(600)}).read_bytes()
    path = tmp_path / "n00000002.tar"
    for length, told in (
        (0, r"n00000002\.tar is (no tar|cut off)"),
        (100, r"n00000002\.tar is (no tar|cut off)"),
        (600, r"is cut off in a\.JPEG, which has 88 of 700 bytes"),
        (1536 + 300, r"is cut off after a\.JPEG"),
        (1536, r"is cut off after a\.JPEG"),
        (2050, r"is cut off in b\.JPEG, which has 2 of 600 bytes"),
        (3072, r"is cut off after b\.JPEG"),
    ):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=told):
            opened(path)


def test_a_damaged_header_does_not_end_a_tar_early(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "n00000001.tar", {"a.JPEG": noise(700), "b.JPEG": noise(600)})
    damaged = bytearray(path.read_bytes())
    damaged[1536 + 10] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"is damaged after a\.JPEG: no header stands at byte 1536"):
        opened(path)
    path.write_bytes(noise(2000))
    with pytest.raises(UserError, match="is no tar, or is damaged"):
        opened(path)


def test_several_tars_in_one_file_are_refused(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "n00000001.tar", {"a.JPEG": noise(5 << 20)}).read_bytes()
    (tmp_path / "n00000001.tar").write_bytes(one + one)
    with pytest.raises(UserError, match=r"after its end, which is after a\.JPEG: several tars"):
        opened(tmp_path / "n00000001.tar")


def test_negative_sizes_and_endless_headers_are_refused(tmp_path: Path) -> None:
    good = write_tar(tmp_path / "n00000001.tar", {"a.JPEG": noise(512)}).read_bytes()[:1024]
    for kind, told in ((tarfile.REGTYPE, r"cut off in b\.JPEG"), (b"Z", r"damaged in b\.JPEG: its size is negative")):
        member = tarfile.TarInfo("b.JPEG")
        member.type = kind
        header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
        header[124:136] = (-512).to_bytes(12, "big", signed=True)  # the next header would be this one again
        _sign(header)
        (tmp_path / "n00000001.tar").write_bytes(good + bytes(header) + bytes(4096))
        with pytest.raises(UserError, match=told):
            opened(tmp_path / "n00000001.tar")
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 2 << 20
    (tmp_path / "n00000002.tar").write_bytes(long.tobuf(tarfile.GNU_FORMAT) + bytes(3 << 20))
    with pytest.raises(UserError, match="a header at byte 512 is larger than any"):
        opened(tmp_path / "n00000002.tar")


def test_compressed_tars_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "n00000001.tar", {"a.JPEG": b"a"})
    (tmp_path / "zip").mkdir()
    (tmp_path / "zip" / "n00000001.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
    for target in (tmp_path / "zip", tmp_path / "zip" / "n00000001.tar.gz"):
        with pytest.raises(UserError, match=r"cannot be read from the middle of a compressed tar, unpack it"):
            opened(target)
    with pytest.raises(UserError, match="compressed tar, unpack it"):
        opened(write_tar(tmp_path / "outer.tar", {"n00000001.tar.gz": b"x"}))


def test_sparse_members_are_read_only_if_they_have_no_holes(tmp_path: Path) -> None:
    solid, holes = (_sparse(tmp_path / f"n{number:08d}.tar", first) for number, first in ((1, 0), (2, 512)))
    assert contents(opened(solid)) == [b"x" * 512]
    with pytest.raises(UserError, match=r"a\.JPEG is stored with holes: make this tar again"):
        opened(holes)


def _sign(header: bytearray) -> None:
    """Put in the checksum that a header has."""
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()


def _sparse(path: Path, first: int) -> Path:
    """A member in the old GNU sparse format: 512 bytes at `first`."""
    member = tarfile.TarInfo("a.JPEG")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 512
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    for place, value in ((386, first), (398, 512), (410, first + 512), (422, 0), (483, first + 512)):
        header[place : place + 12] = f"{value:011o}\0".encode()
    _sign(header)
    path.write_bytes(bytes(header) + b"x" * 512 + bytes(1024))
    return path


def test_headers_alone_are_read_where_that_reads_less(tmp_path: Path) -> None:
    """Large members are skipped; small ones are read along, so that there are few requests."""
    large = {f"{i}.JPEG": noise(400_000, i) for i in range(8)}
    small = {f"{i}.JPEG": noise(5_000, i) for i in range(400)}
    write_tar(tmp_path / "large" / "n00000001.tar", large)
    write_tar(tmp_path / "small" / "n00000001.tar", small)
    away = Elsewhere(tmp_path)
    index = opened("s3://bucket/large", away)
    assert len(index) == 8
    assert away.num_bytes < 20 * rangefile.REMOTE.header
    away.requests.clear()
    assert len(opened("s3://bucket/small", away)) == 400
    assert len(away.requests) <= 6
    assert contents(index, away) == list(large.values())


def test_a_pax_header_may_say_the_size(tmp_path: Path) -> None:
    """As for members beyond 8 GB: the standard library knows, and so do offsets."""
    member = tarfile.TarInfo("a.JPEG")
    member.size = 700
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 600}) as tar:
        member.pax_headers = {"size": "700"}
        tar.addfile(member, io.BytesIO(noise(700)))
        tar.addfile(tarfile.TarInfo("b.JPEG"))
    (tmp_path / "n00000001.tar").write_bytes(out.getvalue())
    assert contents(opened(tmp_path / "n00000001.tar")) == [noise(700), b""]
