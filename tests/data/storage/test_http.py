"""Shards on a web server, and everything that can go wrong on the way."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.data.storage import Access, Storage, open_storage, web
from lockstep.errors import UserError
from tests.data.faultproxy import Fault, FaultProxy, certificates
from tests.data.webserver import WebServer

DATA = random.Random(0).randbytes(3_000_000)


@pytest.fixture
def storage() -> Storage:
    return open_storage(Access())


@pytest.fixture
def server() -> Iterator[WebServer]:
    files = {"/shard.tar": DATA, **{f"/train-{number:03}.tar": b"%d" % number for number in range(12)}}
    with WebServer(files).running() as running:
        yield running


@pytest.fixture
def proxy(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """In front of the server, with little patience for what is silent."""
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.02)
    with FaultProxy(server.port).running() as running:
        yield running


def test_ranges_of_a_page(server: WebServer, storage: Storage) -> None:
    found = storage.find(f"{server.url}/shard.tar")[0]
    assert (found.url, found.size) == (f"{server.url}/shard.tar", len(DATA))
    assert found.tag
    ranges = [(0, 1), (5, 5), (len(DATA) - 1, len(DATA)), (17, 100_017), (0, len(DATA))]
    ranges += [(place, place + 1000) for place in range(0, 2_000_000, 20_000)]
    assert storage.read(found, ranges) == [DATA[start:stop] for start, stop in ranges]
    with pytest.raises(UserError, match="ends at byte 3000000, before byte 3000001"):
        storage.read(found, [(0, len(DATA) + 1)])


def test_long_ranges_are_read_in_pieces(server: WebServer, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.data.storage.parallel.PIECE_BYTES", 70_001)
    found = storage.find(f"{server.url}/shard.tar")[0]
    assert storage.read(found, [(1, len(DATA))]) == [DATA[1:]]


def test_braces_and_lists(server: WebServer, storage: Storage) -> None:
    three = [f"{server.url}/train-{number:03}.tar" for number in (9, 10, 11)]
    assert [one.url for one in storage.find(f"{server.url}/train-{{009..011}}.tar")] == three
    server.files["/list.txt"] = b"train-011.tar\ntrain-009.tar\n\ntrain-010.tar\n" + three[0].encode()
    found = storage.find(f"{server.url}/list.txt")
    assert [one.url for one in found] == three
    assert [storage.read(one, [(0, one.size)]) for one in found] == [[b"9"], [b"10"], [b"11"]]
    server.files["/labels.txt"] = b"a.JPEG 1\nb.JPEG 2\n"
    assert [one.url for one in storage.find(f"{server.url}/labels.txt")] == [f"{server.url}/labels.txt"]


def test_an_empty_page(server: WebServer, storage: Storage) -> None:
    server.files["/empty"] = b""
    found = storage.find(f"{server.url}/empty")[0]
    assert found.size == 0
    assert storage.read(found, [(0, 0)]) == [b""]


def test_a_redirection_is_followed(server: WebServer, storage: Storage) -> None:
    server.moved["/old.tar"] = f"{server.url}/shard.tar"
    found = storage.find(f"{server.url}/old.tar")[0]
    assert found.url == f"{server.url}/old.tar"
    assert storage.read(found, [(7, 9)]) == [DATA[7:9]]


def test_there_is_no_listing(server: WebServer, storage: Storage) -> None:
    with pytest.raises(UserError, match="web servers have no listing: name its files with braces"):
        storage.find(f"{server.url}/")


def test_403_and_404_are_one_sentence_each(server: WebServer, storage: Storage) -> None:
    server.closed.add("/shard.tar")
    with pytest.raises(UserError, match=r"/shard.tar may not be read \(403\): the server wants a login"):
        storage.find(f"{server.url}/shard.tar")
    with pytest.raises(UserError, match=r"there is no http://.*/gone.tar"):
        storage.find(f"{server.url}/gone.tar")
    with pytest.raises(UserError, match=r"there is no http://.*/train-012.tar"):
        storage.find(f"{server.url}/train-{{010..012}}.tar")


def test_a_server_without_ranges(server: WebServer, storage: Storage) -> None:
    """A small file may come whole, a shard may not."""
    server.ranges = False
    with pytest.raises(UserError, match="gives only whole files"):
        storage.find(f"{server.url}/shard.tar")
    server.files["/labels.txt"] = b"a.JPEG 1\nb.JPEG 2\n"
    found = storage.find(f"{server.url}/labels.txt")[0]
    assert storage.read(found, [(0, found.size), (9, 11)]) == [b"a.JPEG 1\nb.JPEG 2\n", b"b."]


def test_a_page_that_changed_is_not_read(server: WebServer, storage: Storage) -> None:
    found = storage.find(f"{server.url}/shard.tar")[0]
    for other in (DATA[::-1], b"short"):
        server.files["/shard.tar"] = other
        with pytest.raises(UserError, match=r"/shard.tar has changed since it was indexed"):
            storage.read(found, [(100, 200)])


def test_the_time_of_change_is_a_tag_where_there_is_no_other(server: WebServer, storage: Storage) -> None:
    server.etags = False
    assert storage.find(f"{server.url}/shard.tar")[0].tag == ""
    server.dates = True
    found = storage.find(f"{server.url}/shard.tar")[0]
    assert "2026" in found.tag
    assert storage.read(found, [(0, 5)]) == [DATA[:5]]


FAULTS = {
    "busy": Fault(503),
    "too many": Fault(429),
    "a bad gateway": Fault(502),
    "cut at once": Fault(cut_after=0),
    "cut in the middle": Fault(cut_after=50_000),
    "silent": Fault(delay_seconds=3600),
    "silent in the middle": Fault(silent_after=50_000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_is_tried_again(proxy: FaultProxy, storage: Storage, name: str) -> None:
    found = storage.find(f"{proxy.url}/shard.tar")[0]
    proxy.inject(FAULTS[name], times=3)
    ranges = [(0, 100_000), (500_000, 600_000), (1_000_000, 1_100_000)]
    assert storage.read(found, ranges) == [DATA[start:stop] for start, stop in ranges]
    assert len(proxy.requests) == 1 + 3 + 3


@pytest.mark.parametrize("name", ["busy", "cut in the middle", "silent"])
def test_what_goes_on_failing_ends_with_a_sentence(
    proxy: FaultProxy, storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TRIES", 2)
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.1)
    found = storage.find(f"{proxy.url}/shard.tar")[0]
    proxy.inject(FAULTS[name], times=1000)
    with pytest.raises(UserError, match=r"cannot read http.*/shard.tar: .*(still answers 503|time and again)"):
        storage.read(found, [(0, 100_000)])
    assert len(proxy.requests) == 1 + 3


def test_a_server_that_asks_for_time_gets_it(proxy: FaultProxy, storage: Storage) -> None:
    found = storage.find(f"{proxy.url}/shard.tar")[0]
    proxy.inject(Fault(503, headers=("Retry-After: 1",)))
    started = time.monotonic()
    assert storage.read(found, [(0, 10)]) == [DATA[:10]]
    assert time.monotonic() - started >= 1


def test_a_server_that_asks_for_a_day_does_not_get_it(
    proxy: FaultProxy, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "MOST_SECONDS", 1)
    found = storage.find(f"{proxy.url}/shard.tar")[0]
    proxy.inject(Fault(503, headers=("Retry-After: 86400",)))
    assert storage.read(found, [(0, 10)]) == [DATA[:10]]


def test_what_cannot_be_reached_is_told_at_once(storage: Storage) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url, said in {
        f"http://127.0.0.1:{port}/x.tar": r"127.0.0.1:\d+ cannot be reached \(Connection refused\)",
        "https://no-such-host.invalid/x.tar": "no-such-host.invalid is not a known host",
        "http://127.0.0.1:99999/x.tar": "127.0.0.1:99999 is not an address",
    }.items():
        started = time.monotonic()
        with pytest.raises(UserError, match=f"cannot read {url}: {said}"):
            storage.find(url)
        assert time.monotonic() - started < 20


def test_a_server_that_restarts_is_waited_for(
    server: WebServer, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has answered before, so its address is right."""
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.1)
    proxy, back, done = FaultProxy(server.port), threading.Event(), threading.Event()

    def come_back() -> None:
        back.wait(10)
        with proxy.running():
            done.wait(30)

    with proxy.running():
        found = storage.find(f"{proxy.url}/shard.tar")[0]
    thread = threading.Thread(target=come_back)
    thread.start()
    threading.Timer(0.3, back.set).start()
    try:
        assert storage.read(found, [(0, 10)]) == [DATA[:10]]
    finally:
        done.set()
        thread.join()


def test_https_with_braces_and_a_list(server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are verified, also by an authority that SSL_CERT_FILE names."""
    server.files |= {"/a-0.tar": b"zero", "/a-1.tar": b"one", "/shards.txt": b"a-1.tar\na-0.tar\n"}
    with FaultProxy(server.port, tls=certificates(tmp_path)).running() as proxy:
        assert proxy.url.startswith("https://")
        with pytest.raises(UserError, match="has no certificate that can be verified"):
            open_storage(Access()).find(f"{proxy.url}/a-0.tar")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        storage = open_storage(Access())
        found = storage.find(f"{proxy.url}/a-{{0..1}}.tar")
        assert found == storage.find(f"{proxy.url}/shards.txt")
        assert [storage.read(one, [(0, one.size)]) for one in found] == [[b"zero"], [b"one"]]


def test_passwords_and_signatures_are_refused(storage: Storage) -> None:
    for url in ("https://me:hidden@host/x.tar", "https://host/x.tar?X-Amz-Signature=hidden"):
        with pytest.raises(UserError, match="would be logged") as caught:
            storage.find(url)
        assert "hidden" not in str(caught.value)
