"""`lockstep data get` against a real server on this host that cuts, lies and refuses."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lockstep import cli
from lockstep.config import Data
from lockstep.data import download, official, open_dataset
from tests.data import files


@dataclass
class Server:
    """What it serves, and how it misbehaves."""

    body: bytes
    has_ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    """Each request is cut after the next of these many bytes."""
    statuses: list[int] = field(default_factory=list)
    """Each request is answered with the next of these."""
    ranges: list[str | None] = field(default_factory=list)
    """What was asked for."""
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.ranges.append(handler.headers.get("Range"))
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            handler.send_error(status)
            return
        start = int((self.ranges[-1] or "bytes=0-")[6:-1]) if self.has_ranges else 0
        if start >= len(self.body):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(self.body)}")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        handler.send_header("Content-Length", str(len(self.body) - start))
        handler.end_headers()
        stop = start + self.cuts.pop(0) if self.cuts else None
        handler.wfile.write(self.body[start:stop])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    folder, contents = files.version("cifar10", "binary", files.cifar10(30), files.cifar10(10))
    body = files.write_tar(tmp_path / "served.tar.gz", folder, {**contents, "readme.html": b"read me"}).read_bytes()
    served = Server(body)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,)).start()
        served.url = f"http://127.0.0.1:{listening.server_port}/cifar-10-binary.tar.gz"
        real = download.ARCHIVES["cifar10", "binary"]
        sizes = {name: len(contents[name]) for name in real.sizes}
        fake = download.Archive(real.name, hashlib.md5(body).hexdigest(), real.folder, real.files, sizes)
        monkeypatch.setitem(download.ARCHIVES, ("cifar10", "binary"), fake)
        monkeypatch.setattr(download, "BACK_OFF_SECONDS", 0.0)
        yield served
        listening.shutdown()


def get(server: Server, directory: Path) -> int:
    return cli.main(["data", "get", "cifar10", str(directory), "--url", server.url])


def part(directory: Path) -> Path:
    return directory / "cifar-10-binary.tar.gz.part"


def check(directory: Path) -> None:
    """The folder is complete and can be trained on, and nothing else is left."""
    assert [path.name for path in directory.iterdir()] == ["cifar-10-batches-bin"]
    assert len(open_dataset(Data(path=str(directory)), 0).train) == 30


def test_an_archive_is_downloaded_checked_and_laid_out(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the second time nothing is asked of the server."""
    assert get(server, tmp_path / "data") == 0
    check(tmp_path / "data")
    told = capsys.readouterr()
    assert "train with --data" in told.out
    assert f"of {len(server.body) / 1e6:.1f} MB" in told.err
    assert get(server, tmp_path / "data") == 0
    assert "is there already" in capsys.readouterr().out
    assert server.ranges == [None]


def test_a_download_that_is_cut_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000, 0, 5000]
    assert get(server, tmp_path) == 0
    assert server.ranges == [None, "bytes=1000-", "bytes=1000-", "bytes=6000-"]
    assert (tmp_path / "cifar-10-batches-bin/test_batch.bin").is_file()


def test_a_later_command_goes_on_as_well(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "data"
    server.cuts = [1000] + [0] * download.ATTEMPTS
    assert get(server, directory) == 2
    assert "the connection ended after 1000 of" in capsys.readouterr().err
    assert part(directory).read_bytes() == server.body[:1000]
    server.cuts.clear()
    assert get(server, directory) == 0
    assert server.ranges[-1] == "bytes=1000-"
    check(directory)


def test_a_server_without_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.has_ranges, server.cuts = False, [1000]
    directory = tmp_path / "data"
    assert get(server, directory) == 0
    check(directory)


@pytest.mark.parametrize("extra", [b"", b"more than there is"])
def test_a_part_that_is_complete_or_too_long(server: Server, tmp_path: Path, extra: bytes) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    part(directory).write_bytes(server.body + extra)
    assert get(server, directory) == 0
    check(directory)


def test_wrong_contents_are_deleted_and_said(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, server.body = server.body, bytes(5000)
    directory = tmp_path / "data"
    assert get(server, directory) == 2
    assert "its MD5 sum is" in capsys.readouterr().err
    assert list(directory.iterdir()) == []
    server.body = good
    assert get(server, directory) == 0


def test_a_missing_page_is_not_asked_for_again(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.statuses = [404]
    assert get(server, tmp_path) == 2
    assert "the server says 404" in capsys.readouterr().err
    assert len(server.ranges) == 1


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.statuses = [503, 429, 500, 200]
    assert get(server, tmp_path / "a") == 0
    server.statuses = [503] * 20
    assert get(server, tmp_path / "b") == 2
    assert capsys.readouterr().err.strip().endswith("what is there is kept")
    assert len(server.statuses) == 20 - download.ATTEMPTS


def test_no_network_is_one_sentence(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that never resolves, a port where nobody listens, and addresses that are none."""
    server.url = "http://127.0.0.1:9/x"
    assert get(server, tmp_path) == 2
    server.url = "http://lockstep.invalid/x"
    assert get(server, tmp_path) == 2
    server.url = "file:///etc/passwd"
    assert get(server, tmp_path) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 3
    assert told.count("look at the network and try again") == 2
    assert "begins with http" in told


def test_an_archive_that_is_there_already_is_used_and_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(server.body)
    assert get(server, tmp_path) == 0
    assert server.ranges == []
    assert (tmp_path / "cifar-10-binary.tar.gz").is_file()
    (tmp_path / "cifar-10-batches-bin/test_batch.bin").unlink()
    assert get(server, tmp_path) == 0
    assert (tmp_path / "cifar-10-batches-bin/test_batch.bin").is_file()


def test_a_file_that_was_cut_off_is_downloaded_again_and_nothing_is_lost(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F4: what training would call truncated is not there already; it may also be a file of the user's own."""
    assert get(server, tmp_path / "data") == 0
    folder = tmp_path / "data/cifar-10-batches-bin"
    whole = (folder / "data_batch_2.bin").read_bytes()
    for number in (1, 2):
        (folder / "data_batch_2.bin").write_bytes(whole[:-5])
        capsys.readouterr()
        assert get(server, tmp_path / "data") == 0
        told, kept = capsys.readouterr(), folder.with_name(f"{folder.name}.old-{number}")
        assert "is there already" not in told.out
        assert (
            f"{folder}/data_batch_2.bin is not the official file, by its size: what is there goes to {kept}" in told.err
        )
        assert (folder / "data_batch_2.bin").read_bytes() == whole
        assert (kept / "data_batch_2.bin").read_bytes() == whole[:-5]


def test_two_commands_do_not_spoil_one_file(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with download._locked(part(tmp_path)):
        assert get(server, tmp_path) == 2
    assert "another process is writing" in capsys.readouterr().err


def test_the_official_checksums_and_names() -> None:
    names = {archive.name for archive in download.ARCHIVES.values()}
    assert names == {f"cifar-{number}-{form}.tar.gz" for number in (10, 100) for form in ("binary", "python")}
    assert all(len(archive.md5) == 32 for archive in download.ARCHIVES.values())
    for (source, form), archive in download.ARCHIVES.items():
        record = 3073 if source == "cifar10" else 3074
        for name, size in archive.sizes.items():
            samples = size / record
            wanted = 50_000 if name.startswith("train") else 10_000
            assert samples == wanted if form == "binary" else wanted < samples < 1.02 * wanted
        unknown = {"test"} if (source, form) == ("cifar100", "python") else set()
        assert set(archive.sizes) == {name for name in archive.files if official.is_data(name)} - unknown
