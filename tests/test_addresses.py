"""What users write as addresses, and what is wrong with it in one sentence."""

from __future__ import annotations

import socket

import pytest

from lockstep import addresses
from lockstep.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", ("10.0.0.1", None)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("some-host:4000", ("some-host", 4000)),
        ("::", ("::", None)),
        ("fe80::1", ("fe80::1", None)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", None)),
    ],
)
def test_hosts_and_ports(text: str, expected: tuple[str, int | None]) -> None:
    assert addresses.split(text) == expected
    if expected[1]:
        assert addresses.shown(*addresses.to_join(text)) == text


@pytest.mark.parametrize("text", ["host", "host:", "host:0", ":80", "host:many", "host:70000", "[::1:80", "[::1]80"])
def test_what_nobody_can_join(text: str) -> None:
    with pytest.raises(UserError, match=r"HOST:PORT|ADDRESS"):
        addresses.to_join(text)


def test_an_address_of_this_host() -> None:
    place = addresses.to_listen("127.0.0.1")
    assert place == addresses.Place("127.0.0.1", 0, "127.0.0.1")
    assert place.is_loopback
    assert addresses.to_listen("localhost").is_loopback


def test_what_cannot_be_listened_on() -> None:
    """Of another host, of none, or taken."""
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1"):
        addresses.to_listen("192.0.2.1")
    with pytest.raises(UserError, match="no host"):
        addresses.to_listen("no-such-host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port} .*a free port"):
            addresses.to_listen(f"127.0.0.1:{port}")


def test_every_address_is_shown_as_the_one_on_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(addresses.ELSEWHERE, socket.AF_INET, "127.0.0.9")
    place = addresses.to_listen("0.0.0.0")
    assert (place.bind, place.host, place.is_guess) == ("0.0.0.0", "127.0.0.1", True)
    monkeypatch.setitem(addresses.ELSEWHERE, socket.AF_INET, "255.255.255.255")  # no way there
    with pytest.raises(UserError, match="give that one with --listen"):
        addresses.to_listen("0.0.0.0")
