"""Workers in network namespaces of their own, behind a bridge whose links can be cut and throttled.

`python -m tests.engines.netns PREFIX train ... --engine netns` is the command `lockstep` with this engine registered.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from lockstep import cli
from lockstep.engines import ENGINES, Command, Entry, OnExit
from lockstep.engines.local import Local

NUM_HOSTS = 3
SUPERVISOR = "10.77.0.1"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Network:
    """A supervisor's host and three workers' hosts, each a namespace with one link to a bridge in a fifth one."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.hosts = ["s", *(f"w{number}" for number in range(NUM_HOSTS))]
        self.hub = f"{prefix}hub"

    def create(self) -> None:
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, host in enumerate(self.hosts):
            namespace = f"{self.prefix}{host}"
            ip("netns", "add", namespace)
            ip("-n", self.hub, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("-n", self.hub, "link", "set", host, "master", "bridge")
            ip("-n", self.hub, "link", "set", host, "up")
            ip("-n", namespace, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", namespace, "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        """Nothing goes in or out any more."""
        ip("-n", self.hub, "link", "set", host, "down")

    def part(self, *hosts: str) -> None:
        """These hosts cannot reach each other, without anything being said; everyone else reaches all of them."""
        for host in hosts:
            self._in_hub("bridge", "link", "set", "dev", host, "isolated", "on")

    def throttle(self, host: str, rate: str) -> None:
        """So fast, and no faster, towards this host."""
        limit = ["rate", rate, "burst", "16kb", "latency", "200ms"]
        self._in_hub("tc", "qdisc", "add", "dev", host, "root", "tbf", *limit)

    def _in_hub(self, *command: str) -> None:
        ip("netns", "exec", self.hub, *command)

    def delete(self) -> None:
        for namespace in [self.hub, *(f"{self.prefix}{host}" for host in self.hosts)]:
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


class Netns(Local):
    """The local engine, but for where its processes run."""

    host = SUPERVISOR
    prefix = ""

    async def start(self, command: Command, on_exit: OnExit) -> None:
        namespace = f"{self.prefix}w{command.id % NUM_HOSTS}"
        arguments = ["ip", "netns", "exec", namespace, *command.arguments]
        await super().start(replace(command, arguments=arguments), on_exit)


if __name__ == "__main__":
    Netns.prefix = sys.argv[1]
    ENGINES["netns"] = Entry("for tests", Netns)
    sys.exit(cli.main(sys.argv[2:]))
