"""Addresses as users write them: `HOST:PORT` to join, `ADDRESS[:PORT]` to listen on. IPv6 stands in brackets."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from lockstep.errors import UserError

MAX_PORT = 65535
ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that nobody has: only the way towards them is looked up, and nothing is sent."""


@dataclass(frozen=True)
class Place:
    """Where a supervisor listens, and by which address others find it."""

    bind: str
    port: int
    """0 means any that is free."""
    host: str
    is_guess: bool = False
    """Whether `host` is only what the routes of this host suggest."""

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback


def shown(host: str, port: int) -> str:
    """As it is typed."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port`, `[::1]:port` or a plain IPv6 address; no port is None."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return host, _port(rest[1:], text) if rest else None
        raise UserError(f"{text!r} is no address: write IPv6 as [ADDRESS]:PORT")
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    if not host:
        raise UserError(f"{text!r} names no host: write HOST:PORT")
    return host, _port(port, text) if colon else None


def _port(text: str, whole: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MAX_PORT:
        raise UserError(f"{whole!r} has no port that could be: write HOST:PORT with a number up to {MAX_PORT}")
    return int(text)


def to_join(text: str) -> tuple[str, int]:
    """Where `lockstep join` is to go; a port must be given."""
    host, port = split(text)
    if not port:
        raise UserError(f"{text!r} has no port: write HOST:PORT as `lockstep train --listen` shows it")
    return host, port


def to_listen(text: str) -> Place:
    """What `--listen` means; UserError if this host has no such address, or somebody else has the port."""
    host, port = split(text)
    family, bind = _resolved(host)
    try:
        listener(bind, port or 0).close()
    except OSError as error:
        raise cannot_listen(text, error) from None
    if not ipaddress.ip_address(bind).is_unspecified:
        return Place(bind, port or 0, bind)
    return Place(bind, port or 0, _way_out(family, text), is_guess=True)


def listener(host: str, port: int = 0) -> socket.socket:
    """A socket that listens on an address of either kind."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def cannot_listen(text: str, error: OSError) -> UserError:
    what = error.strerror or str(error)
    return UserError(
        f"cannot listen on {text} ({what}): give --listen an address of this host, and a free port or none"
    )


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise UserError(f"there is no host {host!r} ({what}): give --listen an address of this host") from None
    return family, str(address[0])


def _way_out(family: socket.AddressFamily, text: str) -> str:
    """The address with which this host appears to others, by its routes."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((ELSEWHERE[family], 9))
            return str(probe.getsockname()[0])
    except OSError:
        raise UserError(
            f"{text} is every address of this host, and no route says by which one others find it: give that one with "
            "--listen"
        ) from None
