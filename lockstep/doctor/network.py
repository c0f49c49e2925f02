"""Checks of the network: how processes of this machine reach each other, and how other machines would."""

from __future__ import annotations

import fcntl
import socket
import struct

from lockstep.doctor.finding import Finding
from lockstep.engines.local import LOOPBACK_INTERFACE

SIOCGIFADDR = 0x8915
ELSEWHERE = ("192.0.2.1", 9)
"""An address that is reserved for documentation. Nothing is sent: only the way to it is asked for."""


def loopback() -> Finding:
    """A connection like those between supervisor and workers."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as client,
        ):
            client.sendall(b"x")
    except OSError as error:
        advice = f"bring the interface up (`ip link set {LOOPBACK_INTERFACE} up`), or let the sandbox allow connections"
        return Finding("problem", "loopback", f"127.0.0.1 cannot be connected to: {error}", advice)
    if LOOPBACK_INTERFACE not in interfaces():
        advice = "gloo needs it: give the container a network name space with a loopback interface"
        return Finding("problem", "loopback", f"there is no interface {LOOPBACK_INTERFACE}", advice)
    return Finding("ok", "loopback", f"{LOOPBACK_INTERFACE}, 127.0.0.1: for workers on this machine")


def others() -> Finding:
    address = own_address()
    if address is None:
        return Finding("ok", "network", "no way to other machines, and training on one machine needs none")
    name = next((name for name in interfaces() if address_of(name) == address), "unknown interface")
    return Finding("ok", "network", f"{name}, {address}: for workers on other machines")


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def address_of(interface: str) -> str | None:
    """The IPv4 address of an interface, asked of a Linux kernel; None where that does not work."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def own_address() -> str | None:
    """The address of the interface by which packets leave this machine; None if there is no way out."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(ELSEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return None
